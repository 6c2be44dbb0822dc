"""Folding of look-alike characters, for rejection alone: a forbidden phrase stays forbidden in another script.

Acceptance never folds: an answer that only looks right is not the answer.
"""

from __future__ import annotations

import unicodedata
from typing import Final

from securebench.families.normalization import normalize_text

_LOOK_ALIKES: Final = str.maketrans(
    # Cyrillic
    "абсԁеғԍһіїјкӏмոорԛгѕтцѵԝхуүз"
    # Greek
    "αβγεηικνορτυχω"
    # Armenian, IPA and Latin letters that NFKC keeps apart
    "օսցɑɡıȷɩʟɴʀʏƅᴀᴄᴅᴇᴊᴋᴍᴏᴘᴛᴜᴠᴡᴢøłđħ",
    "a6cdefghiijklmnopqrstuvwxyy3abyenikvoptuxwouqagijilnrybacdejkmoptuvwzoldh",
)


def folded(text: str) -> str:
    """Return ``text`` normalised, in compatibility form, without accents, with look-alikes as Latin letters."""
    plain = unicodedata.normalize("NFKD", normalize_text(unicodedata.normalize("NFKC", text)))
    bare = "".join(character for character in plain if not unicodedata.combining(character))
    return bare.casefold().translate(_LOOK_ALIKES)
