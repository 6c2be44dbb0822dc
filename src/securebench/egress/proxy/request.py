"""Parse and check a request to the proxy. Each request is checked on its own, by its head only."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from securebench.egress.proxy.decisions import ProxyAttempt, Reason
from securebench.egress.proxy.domains import AllowedDomains, HostError, canonical
from securebench.egress.proxy.resolution import ProxyRequestError

if TYPE_CHECKING:
    import h11

TLS_PORT: Final = 443
HTTP_PORT: Final = 80

_SCHEME: Final = "http"
_MAX_PORT_LENGTH: Final = 5
_ABSOLUTE: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^#]*)(#.*)?", re.DOTALL)
_AUTHORITY: Final = re.compile(r"(\[[^\]]*\]|[^:]*)(?::([0-9]*))?")
_HOP_BY_HOP: Final = frozenset(
    {b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te"}
    | {b"trailer", b"upgrade", b"expect", b"host"}
)
"""Headers that are not forwarded: those for a single hop, ``expect``, and ``host``, which the proxy sets itself."""

Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class ProxyRequest:
    """A parsed request. ``target`` is the request target for the server, empty for a tunnel."""

    attempt: ProxyAttempt
    target: str = ""


class UnreadableError(ProxyRequestError):
    """A request whose target is invalid or has a scheme other than ``http``. ``attempt`` has the readable parts."""

    def __init__(self, attempt: ProxyAttempt, reason: Reason) -> None:
        super().__init__(reason)
        self.attempt = attempt


def read(request: h11.Request) -> ProxyRequest:
    """Parse ``request``, whether or not it is allowed. Raises :class:`UnreadableError`."""
    target = request.target.decode("ascii", "replace")
    if request.method == b"CONNECT":
        return ProxyRequest(_attempt("connect", target, default=None))
    matched = _ABSOLUTE.fullmatch(target)
    if not matched:
        raise UnreadableError(ProxyAttempt.of("http", target), Reason.REQUEST_INVALID)
    scheme, authority, path, fragment = matched.groups()
    if scheme.lower() != _SCHEME or fragment:
        reason = Reason.REQUEST_INVALID if fragment else Reason.SCHEME_REFUSED
        raise UnreadableError(ProxyAttempt.of("http", authority), reason)
    return ProxyRequest(_attempt("http", authority, default=HTTP_PORT), path if path.startswith("/") else f"/{path}")


def judge(proxied: ProxyRequest, request: h11.Request, allowed: AllowedDomains) -> None:
    """Check that ``proxied`` is allowed and that ``request`` is unambiguous. Raises :class:`ProxyRequestError`."""
    attempt = proxied.attempt
    port = TLS_PORT if attempt.kind == "connect" else HTTP_PORT
    if not allowed.admits(attempt.host):
        raise ProxyRequestError(Reason.DOMAIN_NOT_ALLOWED)
    if attempt.port != port:
        raise ProxyRequestError(Reason.PORT_REFUSED)
    _check_framing(request)
    if attempt.kind == "http":
        _check_host(attempt, request)


def forwarded(proxied: ProxyRequest, request: h11.Request) -> Headers:
    """Return the headers to send to the server: the end-to-end headers, with a new ``Host`` and ``Connection``."""
    host = (b"Host", proxied.attempt.host.encode("ascii"))
    return [host, *end_to_end(list(request.headers)), (b"Connection", b"close")]


def end_to_end(headers: Headers) -> Headers:
    """Return the headers to forward: all except ``expect``, ``host`` and those for a single hop.

    A ``Connection`` header may name further headers for a single hop. ``Content-Length`` and ``Transfer-Encoding`` are
    always kept.
    """
    named = {token.strip().lower() for name, value in headers if name == b"connection" for token in value.split(b",")}
    dropped = _HOP_BY_HOP | (named - {b"content-length", b"transfer-encoding"})
    return [(name, value) for name, value in headers if name not in dropped]


def _attempt(kind: str, authority: str, *, default: int | None) -> ProxyAttempt:
    matched = _AUTHORITY.fullmatch(authority)
    if not matched:
        raise UnreadableError(ProxyAttempt.of(kind, authority), Reason.HOST_INVALID)
    host, digits = matched.groups()
    try:
        return ProxyAttempt(kind, canonical(host), _port(digits, default))
    except HostError as error:
        raise UnreadableError(ProxyAttempt.of(kind, authority), error.reason) from error


def _port(digits: str | None, default: int | None) -> int:
    """Return the port, or ``default`` if ``digits`` is ``None``.

    Returns 0 for a port that is empty, too long or has a leading zero, and for a missing port without a ``default``.
    Port 0 is refused later.
    """
    if digits is None and default is not None:
        return default
    usable = digits and len(digits) <= _MAX_PORT_LENGTH and not digits.startswith("0")
    return int(digits) if digits and usable else 0


def _check_framing(request: h11.Request) -> None:
    """Refuse ambiguous framing (request smuggling) and protocol upgrades."""
    names = {name for name, _ in request.headers}
    if b"upgrade" in names:
        raise ProxyRequestError(Reason.UPGRADE_REFUSED)
    lengths = names & {b"content-length", b"transfer-encoding"}
    if len(lengths) > (0 if request.method == b"CONNECT" else 1):
        raise ProxyRequestError(Reason.REQUEST_INVALID)


def _check_host(attempt: ProxyAttempt, request: h11.Request) -> None:
    """Refuse a Host header that does not name the host and port of the URL: such a request is ambiguous."""
    named = [value.decode("ascii", "replace") for name, value in request.headers if name == b"host"]
    try:
        others = {_attempt("http", host, default=HTTP_PORT) for host in named} - {attempt}
    except UnreadableError as error:
        raise ProxyRequestError(Reason.HOST_MISMATCH) from error
    if others:
        raise ProxyRequestError(Reason.HOST_MISMATCH)
