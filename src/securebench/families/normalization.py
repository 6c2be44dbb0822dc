"""How short texts are compared, the same when a pack is loaded and when a candidate is judged.

Pure, and deliberately weak: two texts that a reader would call different answers stay different. Signs, decimal
points, separators and superscripts are kept, so ``-5`` is not ``5``, ``A,B`` is not ``AB`` and ``²`` is not ``2``.
"""

from __future__ import annotations

import re
import string
import unicodedata
from decimal import Decimal

_INVISIBLE_CATEGORIES = frozenset({"Cc", "Cf"})
"""Control and format characters: zero-width spaces and joiners, direction marks, NUL."""

_BLANKS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
"""Characters that are letters, marks or symbols by category, and show nothing."""

_QUOTES = {'"': '"', "'": "'", "`": "`", "“": "”", "\u2018": "\u2019", "„": "“", "«": "»"}
_CLOSERS = frozenset(")]}%" + "".join(_QUOTES.values()))


_DECIMAL = re.compile(r"[-+]?(?:[0-9]{1,50}(?:\.[0-9]{0,50})?|\.[0-9]{1,50})(?:[eE][-+]?[0-9]{1,3})?")


def normalize_text(text: str) -> str:
    """Return ``text`` in the form in which answers are compared. Idempotent; empty if nothing visible is there.

    Invisible characters go, white space collapses, case is folded, canonically equivalent spellings become one (NFC,
    never NFKC), and one pair of outer quotes and the full stop that ends a word are taken off.
    """
    visible = text.translate({ord(character): None for character in set(text) if not _is_visible(character)})
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFD", visible).casefold())
    return _without_wrapping(" ".join(folded.split()))


def strict_decimal(text: str) -> Decimal | None:
    """Return the finite number that ``text`` is, and nothing but is: ASCII digits, no separators; else ``None``."""
    return Decimal(text) if _DECIMAL.fullmatch(text) else None


def choice_labels(count: int) -> tuple[str, ...]:
    """Return the labels of ``count`` choices: A to Z, then AA, AB and so on."""
    return tuple(_label(index) for index in range(count))


def _label(index: int) -> str:
    letters = ""
    while index >= 0:
        index, letter = divmod(index, len(string.ascii_uppercase))
        letters = string.ascii_uppercase[letter] + letters
        index -= 1
    return letters


def _is_visible(character: str) -> bool:
    if character.isspace():
        return True
    if character in _BLANKS or "\ufe00" <= character <= "\ufe0f" or "\U000e0100" <= character <= "\U000e01ef":
        return False  # the two ranges are variation selectors
    return unicodedata.category(character) not in _INVISIBLE_CATEGORIES


def _without_wrapping(text: str) -> str:
    """Take off full stops and quotes until none is left: ``"Paris".`` and ``"Paris."`` are both ``Paris``."""
    while (bare := _without_quotes(_without_full_stop(text))) != text:
        text = bare
    return text


def _without_full_stop(text: str) -> str:
    """Take off the full stop that ends a word: ``..`` and ``.`` are answers of their own."""
    ends_word = len(text) > 1 and text[-1] in ".。" and (text[-2].isalnum() or text[-2] in _CLOSERS)
    return text[:-1] if ends_word else text


def _without_quotes(text: str) -> str:
    """Take off one pair of quotes around everything: not those of ``"a" or "b"``, nor the empty ``''``."""
    closer = _QUOTES.get(text[:1])
    inner = text[1:-1].strip()
    if closer is None or text[-1] != closer or not inner or closer in inner or text[0] in inner:
        return text
    return inner
