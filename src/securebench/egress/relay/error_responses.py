"""Read error responses of providers, for the relay and the judge. This module imports neither asyncio nor h11."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_ERROR_BYTES: Final = 64 * 1024
"""Maximum size of an error response's body. A longer body is not forwarded, because truncated JSON is useless."""

_NUMBER: Final = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")


def retry_after(headers: Iterable[tuple[bytes, bytes]]) -> float | None:
    """Return the delay in seconds from ``Retry-After-Ms`` or ``Retry-After``; ``None`` if neither header is valid."""
    given = {bytes(name): bytes(value).decode("latin-1").strip() for name, value in headers}
    seconds, date = given.get(b"retry-after-ms", ""), given.get(b"retry-after", "")
    try:
        if _NUMBER.fullmatch(seconds):
            return float(seconds) / 1000
        if _NUMBER.fullmatch(date):
            return float(date)
        return max(0.0, (parsedate_to_datetime(date) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError, OverflowError):  # not a date, no time zone, or a year out of range
        return None
