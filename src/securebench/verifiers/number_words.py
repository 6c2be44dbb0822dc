"""Whole numbers in English words: ``forty-two``, ``two hundred and six``, ``eight (8)``."""

from __future__ import annotations

import re
from typing import Final

_SMALL: Final = re.findall(
    r"\w+",
    """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
    eighteen nineteen""",
)
_TENS: Final = ["", "", *re.findall(r"\w+", "twenty thirty forty fifty sixty seventy eighty ninety")]
_LARGE: Final = {"million": 1_000_000, "thousand": 1_000, "hundred": 100}
_VALUES: Final = {
    **{word: value for value, word in enumerate(_SMALL)},
    **{word: 10 * value for value, word in enumerate(_TENS) if word},
}

_WORD: Final = "(?:" + "|".join([*sorted(_VALUES, key=len, reverse=True), *_LARGE]) + ")"
_RUN: Final = re.compile(rf"(?<![\w.-])(?>{_WORD}(?:(?:-|\s+(?:and\s+)?){_WORD})*)(?![\w-])", re.IGNORECASE)
"""A whole number in words. ``three-body`` is another word and does not match."""

_PRONOUN: Final = re.compile(
    r"\b(?:the|no|any|every|each|this|that|which) one\b|\bone (?:of|another|more)\b", re.IGNORECASE
)
_FIGURES: Final = r"\d[\d,]{0,30}"
_AND_FIGURES: Final = re.compile(rf"(?P<words>{_RUN.pattern})\s?\((?P<figures>{_FIGURES})\)", re.IGNORECASE)
_AND_WORDS: Final = re.compile(rf"(?<![\w.,])(?P<figures>{_FIGURES})\s?\((?P<words>{_RUN.pattern})\)", re.IGNORECASE)


def with_figures(text: str) -> str:
    """Return ``text`` with its number as figures: ``They have 8 legs``, and ``8`` for ``eight (8)`` or ``8 (eight)``.

    A text with a second number, in figures or in words, is returned unchanged.
    """
    for both in (_AND_FIGURES, _AND_WORDS):
        text = both.sub(lambda found: _agreed(found, found["words"], found["figures"]), text)
    if any(character.isdigit() for character in text):
        return text
    runs = [] if _PRONOUN.search(text) else list(_RUN.finditer(text))
    value = _value(runs[0][0]) if len(runs) == 1 else None
    return text if value is None else f"{text[: runs[0].start()]}{value}{text[runs[0].end() :]}"


def _agreed(found: re.Match[str], words: str, figures: str) -> str:
    return figures if str(_value(words)) == figures.replace(",", "") else found[0]


def _value(run: str) -> int | None:
    """Return the value of a number in words, or ``None`` if it is not well formed: ``two three``, ``ten-one``."""
    words = [word for word in re.split(r"[\s-]+", run.lower()) if word != "and"]
    total = group = 0
    for word in words:
        if word == "hundred":
            group = max(group, 1) * 100
        elif word in _LARGE:
            total, group = total + max(group, 1) * _LARGE[word], 0
        else:
            group += _VALUES[word]
    spoken = _in_words(total + group)
    return total + group if words in (spoken, spoken[1:] if spoken[:1] == ["one"] else spoken) else None


def _in_words(value: int) -> list[str]:
    """Return the words of a number below a thousand million."""
    for word, size in _LARGE.items():
        if value >= size:
            return [*_in_words(value // size), word, *(_in_words(value % size) if value % size else [])]
    if value < len(_SMALL):
        return [_SMALL[value]]
    return [_TENS[value // 10], *(_in_words(value % 10) if value % 10 else [])]
