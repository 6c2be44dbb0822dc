"""Letters that look like others: folded where two texts must not merely look different.

Used to tell task ids apart and to reject answers, never to accept one.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import Final

from securebench.families.confusables import CONFUSABLES
from securebench.families.normalization import normalize_text

_LATIN_NAME: Final = re.compile(r"(?:.*LATIN|REGIONAL INDICATOR).* LETTER (?:SMALL CAPITAL )?([A-Z])(?: WITH .*)?")
"""The Unicode name of a variant of a Latin letter: a small capital, with a stroke or hook, in a square."""

_REVERSED: Final = re.compile("\u202e([^\u202c\r\n]*)")
"""A right-to-left override, and what it shows in reverse order."""

_PLAIN_SPACE: Final = frozenset(" \t\r\n")


def fold_confusables(text: str) -> str:
    """Return ``text`` normalised, with each letter replaced by the Latin one that it looks like. Idempotent."""
    compatible = unicodedata.normalize("NFKC", normalize_text(text))
    return normalize_text(compatible.translate(CONFUSABLES)).translate(CONFUSABLES)


def skeleton(text: str) -> str:
    """Return the look of ``text`` in Latin letters, for comparing with what is rejected.

    It folds more than :func:`fold_confusables`: accents, strokes and other marks go, small capitals and letters in
    squares become plain, what a right-to-left override reverses is put in order, and unusual spaces become hyphens.
    """
    ordered = _REVERSED.sub(lambda match: match[1][::-1], text)
    shown = ordered.translate({ord(c): "-" for c in set(ordered) if c.isspace() and c not in _PLAIN_SPACE})
    # Twice before case is folded: NFKD may give a Greek capital, whose small letter has another look.
    latin = unicodedata.normalize("NFKD", shown.translate(CONFUSABLES)).translate(CONFUSABLES)
    folded = unicodedata.normalize("NFKD", normalize_text(latin))
    letters = folded.translate({ord(c): _letter(c) for c in set(folded) if not c.isascii()})
    return normalize_text(letters.translate(CONFUSABLES))


@cache
def _letter(character: str) -> str:
    """Return ``character``, the plain Latin letter that it is a variant of, or nothing for a combining mark."""
    if unicodedata.category(character) in {"Mn", "Me"}:
        return ""
    variant = _LATIN_NAME.fullmatch(unicodedata.name(character, ""))
    return variant[1].lower() if variant else character
