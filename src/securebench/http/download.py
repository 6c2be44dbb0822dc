"""Download a file in pieces, resume after a broken connection, and check the file."""

from __future__ import annotations

import hashlib
from contextlib import closing
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from securebench.http.errors import MismatchError, TooLargeError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from securebench.http.address import Address
    from securebench.http.client import HttpClient
    from securebench.http.connection import Response

_MAX_DIGITS: Final = 20
"""A ``Content-Length`` with this many digits or more is ignored: ``int()`` raises an error for thousands of digits."""


class Download:
    """One file, to be iterated over once. The digest is checked after the last piece: do not use the data before that.

    ``limit`` is the maximum number of bytes to accept. ``expected_size`` and ``digest`` (``sha256:HEX`` or
    ``sha512:HEX``) are checked if given. ``size`` is the size in bytes, 0 while unknown; ``received`` counts the bytes
    so far.

    Iteration raises :class:`TooLargeError`, :class:`MismatchError`, and the errors of :meth:`HttpClient.open`.
    """

    def __init__(
        self, client: HttpClient, address: Address, limit: int, *, expected_size: int | None = None, digest: str = ""
    ) -> None:
        self._client = client
        self._address = address
        self._limit = limit
        self._expected_size = expected_size
        self._digest = digest
        self._version = ""
        self.size = expected_size or 0
        self.received = 0

    def __iter__(self) -> Iterator[bytes]:
        hasher = hashlib.new(self._digest.partition(":")[0] or "sha256")
        failed = 0
        while True:
            before = self.received
            try:
                with closing(self._rest()) as pieces:
                    for piece in pieces:
                        self.received += len(piece)
                        self._check_size()
                        hasher.update(piece)
                        yield piece
                if self.received >= self.size:
                    break
                error = UnreachableError(f"the connection ended after {self.received} of {self.size} bytes")
            except UnreachableError as caught:
                error = caught
            if self.received and not self._is_resumable:
                raise error
            failed = 1 if self.received > before else failed + 1
            self._client.pause(self._address, error, failed)
        found = f"{hasher.name}:{hasher.hexdigest()}"
        if self._digest not in {"", found}:
            raise MismatchError(f"the digest is {found}, not {self._digest}")

    @property
    def _is_resumable(self) -> bool:
        """Whether a digest, an ``ETag`` or a ``Last-Modified`` shows if the file changes between two requests."""
        return bool(self._digest or self._version)

    def _check_size(self) -> None:
        if self._expected_size is not None and self.received > self._expected_size:
            raise MismatchError(f"got more than the {self._expected_size} bytes announced")
        if max(self.received, self.size) > self._limit:
            raise TooLargeError(f"the file has more than {self._limit} bytes")

    def _rest(self) -> Generator[bytes]:
        """Yield the file from ``received`` on, even from a server that does not support ranges."""
        headers = {"Range": f"bytes={self.received}-"} if self.received else {}
        with closing(self._client.open(self._address, headers)) as response:
            skip = self.received
            if response.status == HTTPStatus.PARTIAL_CONTENT:
                if not response.header("Content-Range").startswith(f"bytes {self.received}-"):
                    raise MismatchError("the server sent a different range from the requested one")
                skip = 0
            if not self.received:
                self._version, self.size = _version(response), self.size or _length(response)
            elif not self._digest and _version(response) != self._version:
                raise MismatchError("the file changed during the download")
            for piece in response.pieces():
                yield piece[skip:]
                skip = max(0, skip - len(piece))


def _version(response: Response) -> str:
    return response.header("ETag") or response.header("Last-Modified")


def _length(response: Response) -> int:
    header = response.header("Content-Length")
    return int(header) if header.isascii() and header.isdigit() and len(header) < _MAX_DIGITS else 0
