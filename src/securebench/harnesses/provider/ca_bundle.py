"""One more authority for a provider's certificate: the tester's own, for a server of the tester's own."""

from __future__ import annotations

import re
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

VARIABLE: Final = "SSL_CERT_FILE"
"""Names a file of certificates, for all programs that use OpenSSL."""

MAX_FILE: Final = 4 * 1024 * 1024
"""What is read of it. A system's whole collection, as which it is often set, takes a quarter of a megabyte."""

MAX_BYTES: Final = 64 * 1024
"""An authority or a few: what is in the file beside those that the system knows anyway."""

_CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----[\sA-Za-z0-9+/=]+-----END CERTIFICATE-----")


def read_ca_bundle(variables: Mapping[str, str], notify: Callable[[str], None]) -> str | None:
    """Return the certificates in the file that the tester's variable names, in PEM, or ``None`` without one.

    Those that the system knows are left out. As with OpenSSL a file that is not there, or holds no certificate, is
    none; ``notify`` is told.
    """
    path = variables.get(VARIABLE)
    if not path:
        return None
    found = _certificates(path, MAX_FILE)
    if not found:
        notify(f"{VARIABLE} names no file with certificates: only the system's are known")
        return None
    known = _known()
    added = "".join(f"{one}\n" for one in found if one not in known)
    if len(added) > MAX_BYTES:
        notify(f"{VARIABLE} adds more than {MAX_BYTES} bytes of certificates to the system's, which alone are known")
        return None
    return added or None


def _known() -> frozenset[str]:
    """Return the certificates of the system, as OpenSSL finds them without any variable."""
    paths = ssl.get_default_verify_paths()
    files = [Path(paths.openssl_cafile), *Path(paths.openssl_capath).glob("*")]
    return frozenset(one for file in files for one in _certificates(str(file), MAX_FILE))


def _certificates(path: str, limit: int) -> list[str]:
    """Return the certificates in a file of at most ``limit`` bytes, as they stand there; none where it has none."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - the text of a variable, which need not be a path
            data = file.read(limit + 1)
    except (OSError, ValueError):
        return []
    return _CERTIFICATE.findall(data.decode("latin-1")) if len(data) <= limit else []
