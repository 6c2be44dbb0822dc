"""Requests with retries and redirects, within one deadline."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Final

from securebench.http.errors import AddressError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from securebench.http.address import Address
    from securebench.http.connection import Response
    from securebench.http.timeouts import Deadline

MAX_REDIRECTS: Final = 5
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})


class HttpClient:
    """Downloads within one deadline. Shared by threads.

    ``report`` receives a line for the user before each retry. ``proxies`` (scheme to URL) take precedence over those
    in the environment.
    """

    def __init__(
        self,
        deadline: Deadline,
        *,
        report: Callable[[str], None] = lambda _: None,
        proxies: Mapping[str, str] | None = None,
    ) -> None:
        self.deadline = deadline
        self._report = report
        self._proxies = proxies or {}
        self._reached = False

    def get(self, address: Address, headers: Mapping[str, str] | None = None) -> Response:
        """Send one request; return the response, whatever its status. Raises the errors of :meth:`Response.pieces`."""
        from securebench.http import connection

        response = connection.get(address, headers or {}, self.deadline, self._proxy(address))
        self._reached = True
        return response

    def authorized(self, address: Address, headers: Mapping[str, str]) -> Response:
        """Send one request like :meth:`get`. Subclasses may add credentials, but only for the origin they belong to."""
        return self.get(address, headers)

    def open(self, address: Address, headers: Mapping[str, str] | None = None) -> Response:
        """Follow redirects to a successful response (200 or 206), and return it.

        Raises :class:`AddressError`, :class:`StatusError`, and the errors of :meth:`get`.
        """
        for _ in range(MAX_REDIRECTS + 1):
            response = self.authorized(address, headers or {})
            if response.status not in _REDIRECTS:
                return response.checked()
            response.close()
            address = address.follow(response.header("Location"))
        raise AddressError(f"it redirects more than {MAX_REDIRECTS} times")

    def read(self, address: Address, limit: int, headers: Mapping[str, str] | None = None) -> tuple[bytes, str]:
        """Return a document of at most ``limit`` bytes, and its ``Content-Type``. Each retry starts at the first byte.

        Raises :class:`TooLargeError`, and the errors of :meth:`open`.
        """
        attempt = 1
        while True:
            try:
                with closing(self.open(address, headers)) as response:
                    return response.read(limit), response.header("Content-Type")
            except UnreachableError as error:
                self.pause(address, error, attempt)
            attempt += 1

    def pause(self, address: Address, error: UnreachableError, attempts: int) -> None:
        """Wait before the next attempt. Raises ``error`` if there is no next attempt.

        ``attempts`` is the number of attempts so far, and ``error`` is why the last one failed.
        A client that has not yet received any response does not retry: the address or the network may be wrong.
        """
        timeouts = self.deadline.timeouts
        pause = timeouts.pause * 2 ** (attempts - 1) if error.retry_after is None else error.retry_after
        if not self._reached or attempts >= timeouts.attempts or pause > timeouts.longest_pause or error.untrusted:
            raise error
        self._report(f"{address}: {error}; retrying in {pause:.0f} s")
        self.deadline.wait(pause)

    def _proxy(self, address: Address) -> str:
        """Return the URL of the proxy for an address, or an empty string."""
        from urllib.request import getproxies, proxy_bypass

        if address.is_loopback or proxy_bypass(f"{address.host}:{address.port}"):
            return ""
        return self._proxies.get(address.scheme) or getproxies().get(address.scheme, "")
