"""Looking for a secret in files, whatever it was turned into."""

from __future__ import annotations

import base64
import urllib.parse
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def forms(secret: str) -> set[bytes]:
    """Return a secret as it might stand somewhere: plain, in base64 wherever it begins, in hex, percent-encoded."""
    data = secret.encode()
    encoded = [base64.b64encode(b"x" * shift + data)[4 if shift else 0 : -4] for shift in range(3)]
    both = [*encoded, *(form.translate(bytes.maketrans(b"+/", b"-_")) for form in encoded)]
    quoted = "".join(f"%{byte:02X}" for byte in data)
    return {data, data[::-1], data.hex().encode(), urllib.parse.quote(secret).encode(), quoted.encode(), *both}


def holders(secret: str, files: dict[str, bytes]) -> list[str]:
    """Return the names of those that hold the secret, in any form and in either case of letters."""
    wanted = {form.lower() for form in forms(secret)}
    return sorted(name for name, data in files.items() if any(form in data.lower() for form in wanted))


def contents(paths: Iterable[Path]) -> dict[str, bytes]:
    """Return what is in those files that there are, by their paths."""
    found = {}
    for path in paths:
        with suppress(OSError):  # a directory, or it has just gone
            found[str(path)] = path.read_bytes()
    return found
