"""The closed lists of English words by which an answer is told from what surrounds it.

Other wordings and other languages are not recognised: an answer in them is read as the bare text that it is.
"""

from __future__ import annotations

from typing import Final


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


FILLERS: Final = _words(
    """the a an it it's its is was are were be that that's this so thus hence therefore i we my answer think believe
    would in at of on to by for from there"""
)
"""Words that say nothing beside an answer."""

FUNCTION_WORDS: Final = FILLERS | _words(
    """he she they you him her them me us his our your their who whom what which when where why how there here these
    those and but if then than as with within into onto over under after before about between through during up down
    off out am been being do does did has have had can could may might must shall should will"""
)
"""An answer made of these alone, such as a pronoun, cannot be told from filler: nothing may stand beside it."""

CHOICE_FILLERS: Final = FILLERS | _words(
    """option choice letter correct right best final one choose chose pick select go with i'd i'll must
    conclude answered"""
)
"""Words that say nothing beside the label of a choice."""

NEGATIONS: Final = _words(
    """not no never none neither nor cannot without except isn't wasn't aren't weren't don't doesn't didn't can't won't
    wrong incorrect false untrue"""
)
"""Words that take an answer back."""

NUMBER_FILLERS: Final = FILLERS | _words(
    """total sum result value number amount altogether all together overall final equals equal he she they you have has
    had do does did will gets makes now left cost costs price pay pays paid"""
)
"""Words that say nothing beside a number. None compares, rounds or counts."""

NOT_UNITS: Final = _words(
    """hundred thousand million billion trillion lakh crore dozen dozens score half halves third thirds quarter quarters
    fifth tenth point plus minus times squared cubed factorial below above less fewer more greater larger smaller higher
    lower older younger than under over about around nearly
    almost between to from and but if then per each other others bc ad k m b bn mn mio one two three four five six seven
    eight nine ten eleven twelve twenty thirty forty fifty sixty seventy eighty ninety zero double triple twice modulo
    mod percent percentage approximately roughly remainder through till until up down i e pi ago negative positive"""
)
"""Words after a number that make it another number, or no number at all."""

SCALES: Final = (
    _words("second minute hour day week fortnight month year decade century"),
    _words("cent penny dollar buck euro yen"),
    _words(
        "mm cm dm m km millimeter centimeter meter kilometer millimetre centimetre metre kilometre inch foot yard mile"
    ),
    _words("mg g kg t milligram gram kilogram ounce pound ton tonne"),
    _words("ml cl l milliliter liter millilitre litre teaspoon tablespoon cup pint quart gallon"),
)
"""Units of one kind, in the singular: a number in one of them is another amount in the next."""

DOUBTS: Final = _words(
    """wait actually sorry correction oops instead rather alternatively alternative reconsider reconsidering mistake
    mistaken scratch hmm unsure uncertain guess maybe perhaps possibly probably might could otherwise second another
    disregard ignore forget strike revise revised misread apologies choose chose pick select"""
)
"""Words of somebody who has, or may have, another answer."""

VERDICTS: Final = _words("sure certain correct right true think believe answer answers option choice")
"""With a negation, words that take an answer back: ``I am not sure``. Without one they say nothing."""

REASONS: Final = _words("because since due reason explanation reasoning given using")
"""The first words of a sentence that explains."""

POLITE: Final = _words("hope helps help correct thanks thank let know questions")
"""Words of a polite ending."""

POLARITY: Final = _words("do does did can could will would should may must")
"""Verbs that repeat a yes or no: ``No, it does not``."""

HEDGES: Final = _words("or either maybe perhaps possibly probably unless versus vs and/or")
"""Words that set another answer beside one."""
