"""Letters that look like others: folded where two texts must not merely look different.

Used to tell task ids apart and to reject answers, never to accept one.
"""

from __future__ import annotations

import unicodedata
from typing import Final

from securebench.families.normalization import normalize_text

# Case-folded letters; a letter whose capital looks like a Latin one stands here too.
_CYRILLIC = (
    "\u0430a \u0432b \u0435e \u0451e \u0455s \u0456i \u0457i \u0458j \u043ak \u043cm \u043dh \u043eo \u0440p \u0441c "
    "\u0442t \u0443y \u0445x \u0475v \u04afy \u04bbh \u04cfl \u0501d \u051bq \u051dw"
)
_GREEK = (
    "\u03b1a \u03b2b \u03b5e \u03b6z \u03b7h \u03b9i \u03bak \u03bcm \u03bdv \u03bfo \u03c1p \u03c2c \u03c3o \u03c4t "
    "\u03c5y \u03c7x \u03f2c \u03f3j"
)
_LATIN = "\u0131i \u0237j \u0251a \u0261g \u0269i \u1d0fo \u1d1cu \u1d20v \u1d21w \u1d22z"
_LOOKALIKES: Final = str.maketrans({pair[0]: pair[1] for pair in f"{_CYRILLIC} {_GREEK} {_LATIN}".split()})


def fold_lookalikes(text: str) -> str:
    """Return ``text`` normalised, with each letter replaced by the Latin one that it looks like. Idempotent."""
    compatible = unicodedata.normalize("NFKC", normalize_text(text))
    return normalize_text(compatible.translate(_LOOKALIKES)).translate(_LOOKALIKES)
