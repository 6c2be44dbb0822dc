"""How somebody in a sandbox is told that a request is not served: one line, of which nothing is a secret.

The list of what is allowed is not in it: it says what this request would need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import h11

from securebench.network.decisions import Decision, Reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.network.decisions import Attempt
    from securebench.network.resolution import RefusalError

ALERT: Final = bytes((21, 3, 3, 0, 2, 2, 49))
"""A record of TLS: the fatal alert ``access_denied``."""

_BAD_REQUEST: Final = 400
_FORBIDDEN: Final = 403
_BAD_GATEWAY: Final = 502
_TEXTS: Final[Mapping[Reason, str]] = {
    Reason.REQUEST_INVALID: "that is no request that a proxy understands",
    Reason.SCHEME_REFUSED: "only http:// is served here, and https:// through CONNECT",
    Reason.HOST_INVALID: "that is not the name of a host",
    Reason.HOST_IS_ADDRESS: "hosts are reached by their names, not by addresses",
    Reason.HOST_MISMATCH: "the Host header names another host than the URL",
    Reason.PORT_REFUSED: "only port 443 (CONNECT) and port 80 (http://) can be reached",
    Reason.UPGRADE_REFUSED: "connections cannot be upgraded to another protocol",
    Reason.ADDRESS_REFUSED: "the name leads to an address that is not on the public internet",
    Reason.UNRESOLVED: "the name of the host could not be resolved",
    Reason.UNREACHABLE: "the host could not be reached",
}


def refusal(attempt: Attempt, error: RefusalError) -> tuple[h11.Response, h11.Data]:
    """Return the answer to a request that is not served."""
    return answer(_status(error), _text(attempt, error.reason))


def answer(status: int, text: str) -> tuple[h11.Response, h11.Data]:
    """Return an answer of ours, after which the connection is closed."""
    body = f"securebench: {text}\n".encode("ascii")
    headers = [("Content-Type", "text/plain"), ("Content-Length", str(len(body))), ("Connection", "close")]
    return h11.Response(status_code=status, headers=headers), h11.Data(data=body)


def _text(attempt: Attempt, reason: Reason) -> str:
    if reason is Reason.DOMAIN_NOT_ALLOWED:
        return f"denied: {attempt.host} would have to be in allowed_domains of the tester's configuration"
    return f"denied: {_TEXTS.get(reason, reason)}"


def _status(error: RefusalError) -> int:
    if error.reason is Reason.REQUEST_INVALID:
        return _BAD_REQUEST
    return _BAD_GATEWAY if error.decision is Decision.FAILED else _FORBIDDEN
