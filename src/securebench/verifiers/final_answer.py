"""The one rule by which an agent's final answer is read from what it wrote.

1. Lines that are blank or hold only a code fence do not count. The **last line** is the final answer.
2. Where that line holds a cue (``Answer:``, ``The answer is``, ``Answer =``), what follows the last cue on it is the
   final answer, and nothing else of the text is read.
3. Without a cue, a text whose last line settles nothing may still, *as a whole*, be an answer of several lines.

So of many ``Answer:`` lines the last one counts, and only when it is the last line. JSON and tags are not parsed: such
an answer is the text that it is. Every step is linear in the length of the text.
"""

from __future__ import annotations

import re
from typing import Final

from securebench.families.normalization import normalize_text

MAX_TEXT_BYTES: Final = 256 * 1024
"""More than a person would read for one answer; room for a long chain of thought before it."""

MAX_ANSWER_CHARACTERS: Final = 10_000
"""A final answer beyond this is none."""

_CUE: Final = re.compile(r"\banswer[*_`]{0,3}\s?(?::|=|is\b:?)[*_`]{0,3}", re.IGNORECASE)
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_FENCES: Final = ("```", "~~~")
_MARGIN: Final = "#> \t"
"""Marks of a heading or a quotation at the start of a line. A dash is not one: it may be a minus."""

_WRAPPERS: Final = (("**", "**"), ("__", "__"), ("*", "*"), ("`", "`"), ("$", "$"), ("\\boxed{", "}"), ("\\text{", "}"))
_MAX_WRAPPERS: Final = 8

_OPENING: Final = "(\"'`*“\u2018«"
_CLOSING: Final = ")\"'`*”\u2019».,;:"
"""What may cling to a word without being part of it. No sign, decimal point before a digit, or unit is among them."""


def readings(text: str) -> tuple[str, ...]:
    """Return what may be the final answer of ``text``, most decisive first: none of an empty text, at most two."""
    lines = [line for line in _LINE_END.split(text) if _counts(line)]
    if not lines:
        return ()
    last = lines[-1].lstrip(_MARGIN)
    cues = list(_CUE.finditer(last))
    if cues and normalize_text(said := last[cues[-1].end() :]):
        found = [said]
    else:
        found = [last] if len(lines) == 1 else [last, "\n".join(lines)]
    return tuple(unwrapped(answer) for answer in found if len(answer) <= MAX_ANSWER_CHARACTERS)


def unwrapped(answer: str) -> str:
    """Return ``answer`` without the emphasis, code marks or LaTeX box around the whole of it."""
    for _ in range(_MAX_WRAPPERS):
        answer = answer.strip()
        bare = answer.removesuffix(".")
        inside = (bare[len(a) : -len(b)] for a, b in _WRAPPERS if bare.startswith(a) and bare.endswith(b))
        inner = next((text for text in inside if text.strip()), None)
        if inner is None:
            break
        answer = inner
    return answer


def words(text: str) -> tuple[str, ...]:
    """Return the words of ``text``, normalised, without the brackets, quotes and stops that cling to them.

    A word keeps its sign, decimal point and unit: ``-5``, ``.5``, ``5%`` and ``5`` are four words.
    """
    spaced = normalize_text(text).replace("\u2019", "'").split()
    return tuple(word.lstrip(_OPENING).rstrip(_CLOSING) or word for word in spaced)


def position(part: tuple[str, ...], whole: tuple[str, ...], start: int = 0) -> int:
    """Return where ``part`` first stands in ``whole``, word for word, at or after ``start``; -1 if it does not."""
    if not part:
        return -1
    last = len(whole) - len(part)
    return next(
        (at for at in range(start, last + 1) if whole[at] == part[0] and whole[at : at + len(part)] == part), -1
    )


def _counts(line: str) -> bool:
    bare = normalize_text(line)
    return bool(bare) and not line.strip().startswith(_FENCES)
