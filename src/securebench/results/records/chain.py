"""The hashes that chain the records of a run, and the canonical form of values that are hashed.

A record contains the hash of the bytes of the line before it, without the newline, so that no line can be changed,
removed or added without changing all later lines. Values are hashed in the form of RFC 8785, which any other program
can produce too. See ADR 0023.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import rfc8785

if TYPE_CHECKING:
    from collections.abc import Iterable

    from securebench.resources import JsonValue

UNCHAINED: Final = "0" * 64
"""The value of ``previous`` in a record that is not in a journal yet."""

_MAX_INTEGER: Final = 2**53 - 1
"""The largest integer that every reader of JSON represents exactly (RFC 7493)."""


def canonical(value: Any) -> bytes:
    """Return ``value`` as JSON in the form of RFC 8785.

    Raises ``ValueError`` for what this form cannot express: see :func:`expressible`.
    """
    return rfc8785.dumps(value)


def value_digest(value: Any) -> str:
    """Return the sha256 (hex) of the canonical form of ``value``. Raises ``ValueError`` as :func:`canonical` does."""
    return hashlib.sha256(canonical(value)).hexdigest()


def expressible(value: Any) -> JsonValue:
    """Return ``value`` with large integers and lone surrogates as plain text, which RFC 8785 can express."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, Mapping):
        return {str(expressible(key)): expressible(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [expressible(item) for item in value]
    if type(value) is int and abs(value) > _MAX_INTEGER:
        return str(value)
    number_or_constant: JsonValue = value
    return number_or_constant


def line_hash(line: bytes) -> str:
    """Return the sha256 (hex) of a record's line without its newline: the value of ``previous`` in the next record."""
    return hashlib.sha256(line.removesuffix(b"\n")).hexdigest()


def genesis(run_id: str, created_at: str, nonce: str) -> str:
    """Return the value of ``previous`` in the first record of a run."""
    return value_digest({"run_id": run_id, "created_at": created_at, "nonce": nonce})


def candidates_root(digests: Iterable[str]) -> str:
    """Return the sha256 (hex) of the sorted distinct ``digests`` of candidates, each followed by a newline."""
    return hashlib.sha256("".join(f"{digest}\n" for digest in sorted(set(digests))).encode("ascii")).hexdigest()
