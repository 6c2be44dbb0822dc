"""Whether a phrase stands in a text in any spelling that looks like it, or with something put between its letters."""

from __future__ import annotations

import re
from typing import Final

from securebench.families.lookalikes import skeleton
from securebench.verifiers.final_answer import position, words

_PIECE: Final = re.compile(r"[^\W_]+")
_DIGITS: Final = tuple(str.maketrans({"0": "o", "1": one}) for one in "li")
"""Digits read as the letters that they look like: ``L0ndon``. A one is read both ways."""


def stands_in(phrase: str, text: str) -> bool:
    """Whether ``phrase`` stands in ``text``, which is a :func:`skeleton`.

    A phrase of letters alone is found between any signs, and with its words broken up by signs (``Lon-don``) or spelled
    out (``L o n d o n``). Any other phrase is found word for word, as ``-5`` and ``5`` differ by a sign alone.
    """
    wanted = skeleton(phrase)
    if not all(part.isalpha() for part in wanted.split()):
        return position(words(wanted), words(text)) >= 0
    variants = {_with_letters(text, digits) for digits in _DIGITS} if "0" in text or "1" in text else {text}
    return any(_spelled_out(wanted.split(), variant) for variant in variants)


def _with_letters(text: str, digits: dict[int, str]) -> str:
    return _PIECE.sub(lambda piece: piece[0] if piece[0].isdigit() else piece[0].translate(digits), text)


def _spelled_out(wanted: list[str], text: str) -> bool:
    """Whether a run of pieces of ``text`` joins up to the ``wanted`` words."""
    letters = "".join(wanted)
    ends = {len("".join(wanted[: n + 1])) for n in range(len(wanted))}
    pieces = list(_PIECE.finditer(text))
    for first in range(len(pieces)):
        joined = ""
        for number in range(first, len(pieces)):
            if number > first and len(joined) not in ends and not _is_break(pieces[number - 1], pieces[number]):
                break
            joined += pieces[number][0]
            if not letters.startswith(joined):
                break
            if joined == letters:
                return True
    return False


def _is_break(left: re.Match[str], right: re.Match[str]) -> bool:
    """Whether a word may go on from ``left`` to ``right``: over signs without a space, or letter by letter."""
    between = left.string[left.end() : right.start()]
    return " " not in between or (len(left[0]) == len(right[0]) == 1)
