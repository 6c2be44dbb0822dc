"""Error responses of providers: how long to wait before the next request."""

from __future__ import annotations

import pytest

from securebench.egress.relay.error_responses import retry_after


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "30"}, 30.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "9" * 40}, None),
        ({"retry-after": "nan"}, None),
    ],
)
def test_retry_after_is_read_in_all_its_forms(headers: dict[str, str], seconds: float | None) -> None:
    """The delay may be in seconds, in milliseconds or a date. Any other value is ignored."""
    given = [(name.encode(), value.encode()) for name, value in headers.items()]
    assert retry_after(given) == seconds
