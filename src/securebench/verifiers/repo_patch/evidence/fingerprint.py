"""Compare two fingerprints of the code that tests depend on: before the candidate's code ran, and at the end."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def changes(before: Mapping[str, str] | None, after: Mapping[str, str] | None, nonce: str) -> list[str]:
    """Return the names that changed or disappeared. The second fingerprint is signed with ``nonce``.

    New names do not count as changes because packages add functions and classes while they run.
    """
    if before is None or after is None:
        return ["fingerprint"]
    return sorted(name for name, digest in before.items() if after.get(name) != signed(digest, nonce))


def signed(digest: str, nonce: str) -> str:
    """Return ``digest`` as a reporter signs it with the nonce."""
    return hashlib.sha256((nonce + digest).encode("utf-8")).hexdigest()[:32]
