"""Downloads: one HTTP client with deadlines, retries, checked redirects, resumption and digests."""

from securebench.http.address import Address, parse_address, without_password
from securebench.http.client import HttpClient
from securebench.http.download import Download
from securebench.http.errors import (
    AddressError,
    DeadlineError,
    HttpError,
    MismatchError,
    StatusError,
    TooLargeError,
    UnreachableError,
)
from securebench.http.timeouts import Deadline, Timeouts

__all__ = [
    "Address",
    "AddressError",
    "Deadline",
    "DeadlineError",
    "Download",
    "HttpClient",
    "HttpError",
    "MismatchError",
    "StatusError",
    "Timeouts",
    "TooLargeError",
    "UnreachableError",
    "parse_address",
    "without_password",
]
