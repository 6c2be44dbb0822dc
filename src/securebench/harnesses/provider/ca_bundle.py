"""Additional CA certificates to verify a provider with, such as those for a server that the tester operates."""

from __future__ import annotations

import re
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

VARIABLE: Final = "SSL_CERT_FILE"
"""The standard OpenSSL variable that names a file of CA certificates."""

MAX_FILE: Final = 4 * 1024 * 1024
"""Maximum bytes of the file. It is often the system's whole bundle, about a quarter of a megabyte."""

MAX_BYTES: Final = 64 * 1024
"""Maximum bytes of the additional certificates. A file usually adds only a few certificates."""

_CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----[\sA-Za-z0-9+/=]+-----END CERTIFICATE-----")


def read_ca_bundle(variables: Mapping[str, str], notify: Callable[[str], None]) -> str | None:
    """Return the additional certificates (PEM) in the file that ``SSL_CERT_FILE`` names, or ``None``.

    The system's own certificates are left out. Like OpenSSL, this ignores a file that is missing or has no
    certificate. It also ignores a file larger than ``MAX_FILE``, or with more than ``MAX_BYTES`` of additional
    certificates. ``notify`` gets a warning about an ignored file.
    """
    path = variables.get(VARIABLE)
    if not path:
        return None
    found = _certificates(path, MAX_FILE)
    if not found:
        notify(
            f"{VARIABLE}: the file is missing, unreadable or too large, or it has no certificates; "
            "using only the system's CA certificates"
        )
        return None
    known = _system_certificates()
    added = "".join(f"{one}\n" for one in found if one not in known)
    if len(added) > MAX_BYTES:
        notify(
            f"{VARIABLE}: the file adds more than {MAX_BYTES} bytes of certificates; "
            "using only the system's CA certificates"
        )
        return None
    return added or None


def _system_certificates() -> frozenset[str]:
    """Return the system's certificates: those that OpenSSL loads by default."""
    paths = ssl.get_default_verify_paths()
    files = [Path(paths.openssl_cafile), *Path(paths.openssl_capath).glob("*")]
    return frozenset(one for file in files for one in _certificates(str(file), MAX_FILE))


def _certificates(path: str, limit: int) -> list[str]:
    """Return the PEM certificates in a file, unchanged. An unreadable file, or one above ``limit`` bytes, has none."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - the variable's text need not be a valid path
            data = file.read(limit + 1)
    except (OSError, ValueError):
        return []
    return _CERTIFICATE.findall(data.decode("latin-1")) if len(data) <= limit else []
