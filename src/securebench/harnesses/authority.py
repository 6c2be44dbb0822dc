"""One more authority for a provider's certificate: the tester's own, for a server of the tester's own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

VARIABLE: Final = "SSL_CERT_FILE"
"""Names a file of certificates, for all programs that use OpenSSL."""

MAX_BYTES: Final = 64 * 1024
"""A file with an authority or a few. A system's own collection is larger, and is known without this."""

_CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----[\sA-Za-z0-9+/=]+-----END CERTIFICATE-----")


def read_authority(variables: Mapping[str, str], notify: Callable[[str], None]) -> str | None:
    """Return the certificates in the file that the tester's variable names, in PEM, or ``None`` without one.

    As with OpenSSL a file that is not there, or holds no certificate, is none; ``notify`` is told.
    """
    path = variables.get(VARIABLE)
    if not path:
        return None
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - the text of a variable, which need not be a path
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError):
        data = b""
    found = _CERTIFICATE.findall(data.decode("latin-1")) if len(data) <= MAX_BYTES else []
    if not found:
        notify(f"{VARIABLE} names no file with certificates, of at most {MAX_BYTES} bytes: only the system's are known")
        return None
    return "\n".join(found) + "\n"
