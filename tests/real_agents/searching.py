"""Search files for a secret, also in encoded forms."""

from __future__ import annotations

import base64
import urllib.parse
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def forms(secret: str) -> set[bytes]:
    """Return forms of a secret: plain, reversed, in hex, percent-encoded, and in base64 at any offset."""
    data = secret.encode()
    encoded = [base64.b64encode(b"x" * shift + data)[4 if shift else 0 : -4] for shift in range(3)]
    both = [*encoded, *(form.translate(bytes.maketrans(b"+/", b"-_")) for form in encoded)]
    quoted = "".join(f"%{byte:02X}" for byte in data)
    return {data, data[::-1], data.hex().encode(), urllib.parse.quote(secret).encode(), quoted.encode(), *both}


def holders(secret: str, files: dict[str, bytes]) -> list[str]:
    """Return the names of the files that contain the secret in any of its forms. Case is ignored."""
    wanted = {form.lower() for form in forms(secret)}
    return sorted(name for name, data in files.items() if any(form in data.lower() for form in wanted))


def contents(paths: Iterable[Path]) -> dict[str, bytes]:
    """Return the content of each file that can be read, by its path."""
    found = {}
    for path in paths:
        with suppress(OSError):  # a directory, or it was just removed
            found[str(path)] = path.read_bytes()
    return found
