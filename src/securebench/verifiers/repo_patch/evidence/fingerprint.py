"""Compares two fingerprints of what the tests depend on: before the candidate's code ran, and at the end."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def changes(before: Mapping[str, str] | None, after: Mapping[str, str] | None, nonce: str) -> list[str]:
    """Return the names of what changed. The second fingerprint is signed with ``nonce``.

    What is new is no change: packages add to what there is. What is gone is one.
    """
    if before is None or after is None:
        return ["fingerprint"]
    return sorted(name for name, digest in before.items() if after.get(name) != signed(digest, nonce))


def signed(digest: str, nonce: str) -> str:
    """Return what a reporter makes of ``digest`` when it has the nonce."""
    return hashlib.sha256((nonce + digest).encode("utf-8")).hexdigest()[:32]
