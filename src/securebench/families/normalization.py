"""Normalize short texts, in the same way when a pack is loaded and when a candidate is judged.

The normalization is pure and deliberately weak: texts that a reader considers different answers stay different. Signs,
decimal points, separators and superscripts are kept, so ``-5`` is not ``5``, ``A,B`` is not ``AB`` and ``²`` is not
``2``.
"""

from __future__ import annotations

import re
import string
import unicodedata
from decimal import Decimal

_INVISIBLE_CATEGORIES = frozenset({"Cc", "Cf"})
"""Control and format characters: zero-width spaces and joiners, direction marks, NUL."""

_BLANKS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
"""Invisible characters that Unicode classifies as letters, marks or symbols."""

_QUOTES = {'"': '"', "'": "'", "`": "`", "“": "”", "\u2018": "\u2019", "„": "“", "«": "»"}
_CLOSERS = frozenset(")]}%" + "".join(_QUOTES.values()))


_DECIMAL = re.compile(r"[-+]?(?:[0-9]{1,50}(?:\.[0-9]{0,50})?|\.[0-9]{1,50})(?:[eE][-+]?[0-9]{1,3})?")


def normalize_text(text: str) -> str:
    """Return ``text`` in normalized form for comparison. Idempotent; empty if the text has no visible characters.

    Removes invisible characters, collapses white space, folds case, applies NFC (never NFKC), and repeatedly strips
    outer quotes and the full stop after the last word.
    """
    if text.isascii() and text.isprintable():  # the common case: of the steps in ``else``, only case folding matters
        folded = text.lower()
    else:
        visible = text.translate({ord(character): None for character in set(text) if not _is_visible(character)})
        folded = unicodedata.normalize("NFC", unicodedata.normalize("NFD", visible).casefold())
    return _without_wrapping(" ".join(folded.split()))


def strict_decimal(text: str) -> Decimal | None:
    """Parse ``text`` as a finite decimal number: ASCII digits, no separators. Return ``None`` for anything else."""
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
    """Strip final full stops and outer quotes repeatedly: ``"Paris".`` and ``"Paris."`` both become ``Paris``."""
    while (bare := _without_quotes(_without_full_stop(text))) != text:
        text = bare
    return text


def _without_full_stop(text: str) -> str:
    """Strip a full stop after a word. ``..`` and ``.`` stay as they are: they can be answers."""
    ends_word = len(text) > 1 and text[-1] in ".。" and (text[-2].isalnum() or text[-2] in _CLOSERS)
    return text[:-1] if ends_word else text


def _without_quotes(text: str) -> str:
    """Strip one pair of quotes around the whole text, but not those of ``"a" or "b"`` or the empty ``''``."""
    closer = _QUOTES.get(text[:1])
    inner = text[1:-1].strip()
    if closer is None or text[-1] != closer or not inner or closer in inner or text[0] in inner:
        return text
    return inner
