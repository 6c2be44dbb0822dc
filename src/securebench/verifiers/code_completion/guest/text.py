"""Encode and decode JSON with the C code of the standard library, without importing the package ``json``.

The import takes as long as starting Python, because of regular expressions that the C code never uses. If an
interpreter does not have this C code, or has a different version of it, the package is used.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class _Settings:
    """The settings that the scanner reads from its decoder: the defaults of ``json.loads``."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": -float("inf")}.__getitem__


def _refuse(value: Any) -> Any:
    raise TypeError(f"a {type(value).__name__} is not JSON")


def _compiled() -> tuple[Any, Any] | None:
    """Return the C scanner and encoder, or ``None`` if this interpreter does not have them in the expected form."""
    try:
        import _json

        scan: Any = _json.make_scanner
        encode: Any = _json.make_encoder
        # No markers (they would find cycles), no indent, the separators, no sorting or skipping of keys, NaN allowed.
        plain = encode(None, _refuse, _json.encode_basestring_ascii, None, ":", ",", False, False, True)
        return scan(_Settings), plain
    except (ImportError, AttributeError, TypeError):
        return None


_COMPILED = _compiled()


def dumps(value: Any) -> str:
    """Return the JSON of ``value``, in ASCII and without spaces. Cycles are not detected."""
    if _COMPILED is None:
        import json

        return json.dumps(value, separators=(",", ":"), check_circular=False)
    return "".join(_COMPILED[1](value, 0))


def loads(data: bytes) -> Any:
    """Return the value of a JSON text without spaces around it. Raises ``ValueError`` or ``RecursionError``."""
    text = data.decode("utf-8")
    if _COMPILED is None:
        import json

        return json.loads(text)
    try:
        value, end = _COMPILED[0](text, 0)
    except StopIteration:
        raise ValueError("the text does not begin with a JSON value") from None
    if end != len(text):
        raise ValueError("the text continues after the JSON value")
    return value
