"""Why a download failed. Callers turn these exceptions into errors with their own code and hint.

Each message is a reason in plain English, without credentials and query strings, to be put after "cannot fetch X: ".
"""

from __future__ import annotations


class HttpError(Exception):
    """The base class."""


class UnreachableError(HttpError):
    """No usable response: the connection failed or was silent for too long, or the server is busy.

    ``retry_after`` is the number of seconds that the server asks to wait, if it does. ``untrusted``: TLS refused the
    server's certificate, so that a retry is pointless.
    """

    def __init__(self, reason: str, *, retry_after: float | None = None, untrusted: bool = False) -> None:
        super().__init__(reason)
        self.retry_after = retry_after
        self.untrusted = untrusted


class DeadlineError(HttpError):
    """The download took too long, or was stopped."""


class AddressError(HttpError):
    """An address that must not be used, or a redirect that must not be followed."""


class StatusError(HttpError):
    """The server responded with the HTTP status ``status``: an error for which a retry is pointless."""

    def __init__(self, reason: str, status: int) -> None:
        super().__init__(reason)
        self.status = status


class TooLargeError(HttpError):
    """There is more data than the caller accepts."""


class MismatchError(HttpError):
    """The data does not have the expected size, digest or range, or changed during the download."""
