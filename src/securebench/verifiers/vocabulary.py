"""The closed lists of English words by which an answer is told from what surrounds it.

Other wordings and other languages are not recognised: an answer in them is read as the bare text that it is.
"""

from __future__ import annotations

from typing import Final


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


FILLERS: Final = _words(
    """the a an it it's its is was are were be that that's this so thus hence therefore i we my answer think believe
    would in at of on to by for from"""
)
"""Words that say nothing beside an answer."""

FUNCTION_WORDS: Final = FILLERS | _words(
    """he she they you him her them me us his our your their who whom what which when where why how there here these
    those and but if then than as with within into onto over under after before about between through during up down
    off out am been being do does did has have had can could may might must shall should will"""
)
"""An answer made of these alone, such as a pronoun, cannot be told from filler: nothing may stand beside it."""

CHOICE_FILLERS: Final = FILLERS | _words("option choice letter correct right best final one")
"""Words that say nothing beside the label of a choice."""

NEGATIONS: Final = _words(
    """not no never none neither nor cannot without except isn't wasn't aren't weren't don't doesn't didn't can't won't
    wrong incorrect false untrue"""
)
"""Words that take an answer back."""

HEDGES: Final = _words("or either maybe perhaps possibly probably unless versus vs and/or")
"""Words that set another answer beside one."""
