"""Fold confusable letters, so that two texts that look alike compare as equal.

Used to detect confusable task ids and contradictory rubrics, and to reject answers, but never to accept an answer.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import Final

from securebench.families.confusables import CONFUSABLES
from securebench.families.normalization import normalize_text

_LATIN_NAME: Final = re.compile(r"(?:.*LATIN|REGIONAL INDICATOR).* LETTER (?:SMALL CAPITAL )?([A-Z])(?: WITH .*)?")
"""Matches the Unicode name of a variant of a Latin letter: small capitals, letters with marks, letters in squares."""

_REVERSED: Final = re.compile("\u202e([^\u202c\r\n]*)")
"""A right-to-left override and the text that it reverses."""

_PLAIN_SPACE: Final = frozenset(" \t\r\n")


def fold_confusables(text: str) -> str:
    """Normalize ``text`` and replace each confusable letter with the Latin letters that it looks like. Idempotent."""
    compatible = unicodedata.normalize("NFKC", normalize_text(text))
    return normalize_text(compatible.translate(CONFUSABLES)).translate(CONFUSABLES)


def skeleton(text: str) -> str:
    """Return the visual skeleton of ``text`` in Latin letters, for comparison with rejected answers.

    It folds more than :func:`fold_confusables`: it also removes accents, strokes and other marks, replaces small
    capitals and squared letters, undoes right-to-left overrides, and turns unusual spaces into hyphens.
    """
    ordered = _REVERSED.sub(lambda match: match[1][::-1], text)
    shown = ordered.translate({ord(c): "-" for c in set(ordered) if c.isspace() and c not in _PLAIN_SPACE})
    # Apply the table twice before case folding: NFKD may yield a Greek capital whose small letter looks different.
    latin = unicodedata.normalize("NFKD", shown.translate(CONFUSABLES)).translate(CONFUSABLES)
    folded = unicodedata.normalize("NFKD", normalize_text(latin))
    letters = folded.translate({ord(c): _letter(c) for c in set(folded) if not c.isascii()})
    return normalize_text(letters.translate(CONFUSABLES))


@cache
def _letter(character: str) -> str:
    """Return the Latin letter of which ``character`` is a variant, else ``character``; empty for a combining mark."""
    if unicodedata.category(character) in {"Mn", "Me"}:
        return ""
    variant = _LATIN_NAME.fullmatch(unicodedata.name(character, ""))
    return variant[1].lower() if variant else character
