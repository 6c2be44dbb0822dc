"""Decide whether the text around an answer explains the answer or takes it back.

Uses a closed list of English words and the structure of sentences. When in doubt, a sentence is another answer.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from securebench.families.skeleton import skeleton
from securebench.verifiers.final_answer import CUE, words
from securebench.verifiers.markup import plain
from securebench.verifiers.vocabulary import (
    ANNOUNCEMENTS,
    DISBELIEF,
    DOUBTS,
    FUNCTION_WORDS,
    HEDGES,
    NEGATIONS,
    OTHER_ANSWERS,
    POLITE,
    REASONS,
    SHARED_WORDS,
    VERDICTS,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_REMARK_CHARACTERS: Final = 10_000
MAX_SENTENCES: Final = 200
"""A longer remark is not an explanation. This limit bounds time: each sentence is compared with each choice."""

_SENTENCE_END: Final = re.compile(r"(?<=[.!?;])\s+|\n")
_CLAUSE_END: Final = re.compile(r"[.,;:!?]\s")
_FEW_WORDS: Final = 3
"""A sentence with fewer words of its own may be an answer: ``London.``, ``The capital is London.``"""


_STEP_WORDS: Final = 5
"""A sentence with fewer words and no figures may give a number in words."""


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences and lines of ``text`` that have visible content."""
    yield from (part for part in _SENTENCE_END.split(plain(text)) if words(part))


def is_too_long(remark: str) -> bool:
    """Whether ``remark`` is too long to be an explanation."""
    return len(remark) > MAX_REMARK_CHARACTERS or len(_SENTENCE_END.findall(remark)) > MAX_SENTENCES


def is_denied(lead: str, *, shared: bool = True) -> bool:
    """Whether the clause right before an answer denies or doubts it: ``I don't think that the answer is``.

    If not ``shared``, words of doubt that also occur in calculations are ignored.
    """
    doubts = DOUBTS if shared else DOUBTS - SHARED_WORDS
    *earlier, clause = _CLAUSE_END.split(lead)
    if {skeleton(word) for word in words(clause)} & (NEGATIONS | HEDGES | doubts | OTHER_ANSWERS):
        return True
    colon = lead[: len(lead) - len(clause)].rstrip().endswith(":")
    return bool(earlier) and _announces_a_denial(set(_normalized(earlier[-1])), colon=colon)


def _announces_a_denial(found: set[str], *, colon: bool) -> bool:
    """Whether the words ``found`` in the sentence before an answer deny it: ``It is a lie:``, ``This is not true:``."""
    if not (colon or "following" in found):
        return False
    denies = found & DISBELIEF or (found & NEGATIONS and found & VERDICTS)
    announces = found & ANNOUNCEMENTS or found <= DISBELIEF
    return bool(denies and announces) and found <= FUNCTION_WORDS | NEGATIONS | DISBELIEF | VERDICTS | ANNOUNCEMENTS


def is_second_thought(sentence: str, question: frozenset[str], rivals: frozenset[str] | None = None) -> bool:
    """Whether a ``sentence`` after an answer takes it back, or could be another answer.

    ``rivals`` are the words of all other answers, if these are known: a short sentence without any of them is harmless.
    """
    tokens = _normalized(sentence)
    found = set(tokens)
    if CUE.search(sentence) or found & DOUBTS or tokens[0] in HEDGES or "####" in sentence or "boxed" in sentence:
        return True
    if "or" in found and tokens[-1][:1].isdigit():
        return True
    content = _content(tokens)
    if found & NEGATIONS and (len(content) < _FEW_WORDS or found & VERDICTS):
        return True
    if _begins_with_a_reason(tokens):
        return len(content) <= 1 and not any(word[:1].isdigit() for word in content)
    spare = len(content) > 1 or question.issuperset(content)
    # If the choices are numbers, other spellings of a number are rivals too.
    numeric = rivals is not None and _has_figures([*rivals]) and _has_figures(content)
    if rivals is not None and spare and not numeric and found & FUNCTION_WORDS and rivals.isdisjoint(found):
        return False
    fresh = [word for word in content if word not in question]
    listed = len(content) >= _FEW_WORDS and not found & FUNCTION_WORDS and "=" not in found
    return listed or 0 < len(content) < _FEW_WORDS or 0 < len(fresh) < _FEW_WORDS


def is_working(sentence: str) -> bool:
    """Whether ``sentence`` may be a step of a calculation: it has figures or several words, or is a heading."""
    tokens = _normalized(sentence)
    found = set(tokens)
    if CUE.search(sentence) or found & (DOUBTS - SHARED_WORDS | NEGATIONS) or "####" in sentence or "boxed" in sentence:
        return False
    if "or" in found and tokens[-1][:1].isdigit():
        return False
    return _has_figures(tokens) or len(tokens) >= _STEP_WORDS or sentence.rstrip(" *_").endswith(":")


def explains(sentence: str) -> bool:
    """Whether ``sentence`` gives a reason in more than one or two words."""
    tokens = _normalized(sentence)
    return _begins_with_a_reason(tokens) and len(_content(tokens)) >= _FEW_WORDS


def _begins_with_a_reason(tokens: list[str]) -> bool:
    """Whether ``tokens`` begins with ``because`` or similar, possibly after filler: ``This is because``."""
    first = next((word for word in tokens if word not in FUNCTION_WORDS), "")
    return first in REASONS


def _has_figures(tokens: list[str]) -> bool:
    return any(character.isdigit() for word in tokens for character in word)


def _normalized(sentence: str) -> list[str]:
    return [skeleton(word.rstrip("!")) or word for word in words(sentence)]


def _content(tokens: list[str]) -> list[str]:
    return [word for word in tokens if word not in FUNCTION_WORDS | NEGATIONS | POLITE | REASONS]
