"""The server of ``securebench view``: read-only, on the loopback interface, for one user.

Other programs and users of the machine can reach a loopback port, and so can any web page that this user opens.
Therefore every request needs a secret, and a Host header that no other site can have. The check of this header
prevents DNS rebinding.
"""

from __future__ import annotations

import os
import secrets
import socket
import tempfile
import webbrowser
from contextlib import ExitStack
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.routing import Route

from securebench.errors import ConfigError, SecureBenchError
from securebench.report.live_pages import LivePages, Page, message_page
from securebench.report.pages import content_security_policy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

ADDRESS: Final = "127.0.0.1"
_HOSTS: Final = frozenset({ADDRESS, "localhost"})
_COOKIE: Final = "securebench"
_HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": content_security_policy(is_live=True) + "; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def application(directories: Sequence[Path], token: str, port: int) -> ASGIApp:
    """Return the ASGI application for the runs in ``directories``.

    ``token`` is the secret that a browser needs to see the runs. A browser keeps the secret in a cookie. The name of
    the cookie contains ``port``, because browsers send a cookie to every port of a host.
    """
    pages = LivePages(directories)

    def overview(request: Request) -> Response:
        return _response(request, pages.overview)

    def task(request: Request) -> Response:
        number, sequence = request.path_params["number"], request.path_params["sequence"]
        return _response(request, lambda: pages.task(number, sequence))

    routes = [Route("/", overview), Route("/run/{number:int}/task/{sequence:int}", task)]
    return _Guard(Starlette(routes=routes), token, f"{_COOKIE}-{port}")


def _response(request: Request, page_of: Callable[[], Page | None]) -> Response:
    try:
        page, status = page_of(), 200
    except SecureBenchError as error:
        page, status = message_page("This run cannot be shown", str(error)), 500
    if page is None:
        page, status = message_page("Not found", "No such task. If the run was resumed, open the overview again."), 404
    headers = {"ETag": page.tag}
    if status == 200 and request.headers.get("If-None-Match") == page.tag:  # noqa: PLR2004 - an HTTP status
        return Response(status_code=304, headers=headers)
    return Response(page.content, status, headers, media_type="text/html")


class _Guard:
    """Lets only safe requests with the secret reach ``app``, and adds the security headers to every response."""

    def __init__(self, app: ASGIApp, token: str, cookie: str) -> None:
        self._app = app
        self._token = token
        self._cookie = cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        is_known = self._has_cookie(Headers(scope=scope))
        response = self._refusal(scope) or self._welcome(scope) or (None if is_known else _plain(403, _NOT_ADMITTED))

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                raw = [(name.lower().encode(), value.encode()) for name, value in _HEADERS.items()]
                message["headers"] = [*message.get("headers", ()), *raw]
            await send(message)

        await (self._app if response is None else response)(scope, receive, send_guarded)

    @staticmethod
    def _refusal(scope: Scope) -> Response | None:
        """Return an error for a request that may come from another site or change something, otherwise ``None``."""
        if scope["method"] not in {"GET", "HEAD"}:
            return _plain(405, "only GET and HEAD are allowed", {"Allow": "GET, HEAD"})
        hosts = Headers(scope=scope).getlist("host")
        if len(hosts) != 1 or hosts[0].rpartition(":")[0].lower() not in _HOSTS:
            return _plain(403, f"the Host header must be {ADDRESS} or localhost, with a port")
        return None

    def _welcome(self, scope: Scope) -> Response | None:
        """Exchange the secret in the address for a cookie. Return ``None`` if the address has no valid secret.

        The response is a page that opens the overview, not a redirect: after a redirect, the browser would not send a
        SameSite=Strict cookie if the address was opened from another site, such as a web terminal.
        """
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [])
        if scope["path"] != "/" or len(given) != 1 or not self._is_token(given[0]):
            return None
        html = '<!doctype html><meta http-equiv="refresh" content="0;url=/"><title>SecureBench</title>'
        cookie = f"{self._cookie}={self._token}; HttpOnly; SameSite=Strict; Path=/"
        return Response(html, headers={"Set-Cookie": cookie}, media_type="text/html")

    def _has_cookie(self, headers: Headers) -> bool:
        try:
            cookies = SimpleCookie(headers.get("cookie", ""))
        except CookieError:
            return False
        return self._cookie in cookies and self._is_token(cookies[self._cookie].value)

    def _is_token(self, given: str) -> bool:
        return secrets.compare_digest(given.encode(), self._token.encode())


_NOT_ADMITTED: Final = "open the address that 'securebench view' printed: it contains a secret"


def _plain(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    return Response(f"{message}\n", status, headers, media_type="text/plain")


def serve(directories: Sequence[Path], *, port: int = 0, browser: bool = True, notify: Callable[[str], None]) -> None:
    """Serve the runs in ``directories`` until an interrupt. Call ``notify`` with the address.

    With ``port`` 0, a free port is used. If ``browser`` is set and there is a display, the address is opened in a
    browser. Raises :class:`ConfigError`: ``view-port-taken``, or for a run that is missing or damaged.
    """
    LivePages(directories).overview()
    token = secrets.token_urlsafe(24)
    with ExitStack() as stack:
        listener = stack.enter_context(_listener(port))
        port = listener.getsockname()[1]
        address = f"http://{ADDRESS}:{port}/?token={token}"
        notify(address)
        if browser and (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
            _open_browser(address, stack)
        config = uvicorn.Config(
            application(directories, token, port),
            log_level="error",
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            limit_concurrency=64,
            timeout_graceful_shutdown=1,
        )
        uvicorn.Server(config).run(sockets=[listener])


def _listener(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((ADDRESS, port))
        listener.listen()  # the address works from now on: requests wait until the server has started
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"cannot listen on {ADDRESS}:{port}: {error.strerror}",
            code="view-port-taken",
            hint="choose another port with --port, or omit --port to use a free one",
        ) from error
    return listener


def _open_browser(address: str, stack: ExitStack) -> None:
    """Open ``address`` through a private file, because other users can read the arguments of a browser's process."""
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="securebench-view-")))
    page = directory / "open.html"
    page.write_text(f'<!doctype html><meta http-equiv="refresh" content="0;url={address}">', encoding="utf-8")
    webbrowser.open(page.as_uri())
