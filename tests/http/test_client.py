"""Requests: redirects, retries, proxies and certificates."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from base64 import b64encode
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
import trustme

from fake_server import Content, FakeServer, redirects, says, stalls
from securebench.http.address import parse_address
from securebench.http.client import HttpClient
from securebench.http.errors import AddressError, DeadlineError, StatusError, TooLargeError, UnreachableError
from securebench.http.timeouts import Deadline, Timeouts

from .conftest import QUICK

if TYPE_CHECKING:
    from pathlib import Path

DATA = b"some data"


@pytest.fixture(autouse=True)
def _data(server: FakeServer) -> None:
    server.files["/data"] = Content(DATA, "text/plain")


def read(client: HttpClient, server: FakeServer, path: str = "/data") -> bytes:
    """Return the body of the document at ``path``."""
    return client.read(parse_address(f"{server.url}{path}"), 1000)[0]


def test_a_document_has_a_body_and_a_type(client: HttpClient, server: FakeServer) -> None:
    """``read`` returns the body and the content type; the request's user agent is SecureBench."""
    assert client.read(parse_address(f"{server.url}/data"), 1000) == (DATA, "text/plain")
    assert server.requests[0].headers["user-agent"].startswith("securebench/")


def test_a_document_is_read_up_to_its_limit(client: HttpClient, server: FakeServer) -> None:
    """K08: a document that is larger than the limit is an error."""
    with pytest.raises(TooLargeError, match="more than 8 bytes"):
        client.read(parse_address(f"{server.url}/data"), len(DATA) - 1)


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_busy_server_is_asked_again(client: HttpClient, server: FakeServer, lines: list[str], status: int) -> None:
    """J19: a request to a busy server is repeated, and the user sees the reason."""
    server.faults["/data"] = [says(status)]
    assert read(client, server) == DATA
    assert lines[0].startswith(f"{server.host}: HTTP status {status} ")
    assert "retrying in 0 s" in lines[0]


def test_a_server_that_stays_busy_is_given_up(client: HttpClient, server: FakeServer) -> None:
    """A request that keeps failing is an error after the maximum number of attempts."""
    server.faults["/data"] = [says(500)] * 9
    with pytest.raises(UnreachableError, match="HTTP status 500 Internal Server Error"):
        read(client, server)
    assert len(server.requests) == QUICK.attempts


@pytest.mark.parametrize("status", [204, 304, 400, 401, 403, 404, 418, 501])
def test_any_other_status_is_an_error_at_once(client: HttpClient, server: FakeServer, status: int) -> None:
    """Each of these statuses is an error without a retry. The caller decides what the status means."""
    server.faults["/data"] = [says(status, b"")]
    with pytest.raises(StatusError) as raised:
        read(client, server)
    assert raised.value.status == status
    assert len(server.requests) == 1


def test_the_server_may_ask_for_a_pause(client: HttpClient, server: FakeServer) -> None:
    """J19: the client waits as long as the ``Retry-After`` header asks for."""
    server.faults["/data"] = [says(429, Retry_After="1")]
    started = time.monotonic()
    assert read(client, server) == DATA
    assert time.monotonic() - started >= 1


def test_a_pause_that_is_too_long_is_an_error(client: HttpClient, server: FakeServer) -> None:
    """A ``Retry-After`` that exceeds the longest pause is an error, and the client does not wait."""
    server.faults["/data"] = [says(429, Retry_After="3600")]
    with pytest.raises(UnreachableError, match="429 Too Many Requests") as raised:
        read(client, server)
    assert raised.value.retry_after == 3600


@pytest.mark.parametrize(
    "delay", ["Wed, 21 Oct 2015 07:28:00 GMT", "0", "soon", "-1", "Fri, 31 Dec 9999 23:59:59 -2359"]
)
def test_a_pause_may_be_given_as_a_date(client: HttpClient, server: FakeServer, delay: str) -> None:
    """A past date or an invalid value in ``Retry-After`` causes no long pause; a date far in the future is an error."""
    server.faults["/data"] = [says(429, Retry_After=delay)]
    if "9999" in delay:
        with pytest.raises(UnreachableError):
            read(client, server)
    else:
        assert read(client, server) == DATA


def test_a_server_that_never_responded_is_not_tried_again() -> None:
    """A client that never received a response does not retry: the address or the network is probably wrong."""
    lines: list[str] = []
    client = HttpClient(Deadline(Timeouts(pause=30)), report=lines.append)
    with pytest.raises(UnreachableError, match="Connection refused"):
        client.read(parse_address("http://127.0.0.1:1/"), 1)
    assert not lines


def test_a_host_name_that_is_too_long_is_an_error(client: HttpClient) -> None:
    """K15: a well-formed address with an invalid host name is an error."""
    with pytest.raises(UnreachableError, match="host name is invalid"):
        client.get(parse_address(f"https://{'a' * 64}.example/"))


def test_silence_is_a_failed_attempt(client: HttpClient, server: FakeServer) -> None:
    """A server that sends nothing before the read timeout causes a failed attempt, and the request is repeated."""
    read(client, server)
    server.faults["/data"] = [stalls] * 2
    assert read(client, server) == DATA


def test_stopping_interrupts_a_silent_connection(server: FakeServer) -> None:
    """``Deadline.stop`` interrupts a read before the read timeout, and prevents further requests."""
    deadline = Deadline(Timeouts(read=60))
    server.faults["/data"] = [stalls]
    timer = threading.Timer(0.3, deadline.stop)
    timer.start()
    started = time.monotonic()
    with pytest.raises(DeadlineError, match="was stopped"):
        read(HttpClient(deadline), server)
    timer.join()
    assert time.monotonic() - started < 15
    with pytest.raises(DeadlineError):
        HttpClient(deadline).get(parse_address(server.url))


def test_a_silent_tls_handshake_ends_with_the_deadline() -> None:
    """The deadline also interrupts a TLS handshake in which the server sends nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = parse_address(f"https://127.0.0.1:{listening.getsockname()[1]}/")
        started = time.monotonic()
        with pytest.raises(DeadlineError, match=r"longer than 0\.4 s"):
            HttpClient(Deadline(Timeouts(connect=60, total=0.4))).get(address)
    assert time.monotonic() - started < 15


def test_a_pause_ends_with_the_deadline(server: FakeServer) -> None:
    """The limit of the total time includes pauses between attempts."""
    server.faults["/data"] = [says(503, Retry_After="60")]
    started = time.monotonic()
    with pytest.raises(DeadlineError, match=r"longer than 0\.4 s"):
        read(HttpClient(Deadline(Timeouts(total=0.4))), server)
    assert time.monotonic() - started < 15


def test_a_redirect_is_followed(client: HttpClient, server: FakeServer) -> None:
    """Relative and absolute redirects are followed."""
    server.faults["/moved"] = [redirects("/data"), redirects(f"{server.url}/data")]
    assert read(client, server, "/moved") == read(client, server, "/moved") == DATA


@pytest.mark.parametrize("location", ["/data", ""])
def test_a_redirect_loop_ends(client: HttpClient, server: FakeServer, location: str) -> None:
    """J09: the number of redirects is bounded. An empty location leads to the same page again."""
    server.faults["/data"] = [redirects(location)] * 50
    with pytest.raises(AddressError, match="redirects more than 5 times"):
        read(client, server)
    assert len(server.requests) < 10


@pytest.mark.parametrize("location", ["http://other.example/x", "file:///etc/passwd", "http://u:p@127.0.0.1/x"])
def test_an_unsafe_redirect_is_not_followed(client: HttpClient, server: FakeServer, location: str) -> None:
    """J09: a redirect to plain HTTP on another machine, to a file or with a password is an error at once."""
    server.faults["/data"] = [redirects(location)] * 9
    with pytest.raises(AddressError):
        read(client, server)
    assert len(server.requests) == 1


def test_a_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch, client: HttpClient) -> None:
    """For https, the client requests a tunnel and sends the proxy's password. The error does not contain it."""
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        monkeypatch.setenv("https_proxy", f"http://user:pass%20word@127.0.0.1:{proxy.getsockname()[1]}")
        seen: list[bytes] = []
        thread = threading.Thread(target=_refuse_tunnel, args=(proxy, seen))
        thread.start()
        with pytest.raises(UnreachableError, match="403") as raised:
            client.get(parse_address("https://registry.example.com/x"))
        thread.join()
    assert seen[0].startswith(b"CONNECT registry.example.com:443 ")
    assert b64encode(b"user:pass word") in seen[0]
    assert "pass" not in str(raised.value)


def test_plain_http_is_forwarded_by_a_proxy(monkeypatch: pytest.MonkeyPatch, server: FakeServer) -> None:
    """A proxy in ``proxies`` is used instead of the environment's proxy.

    For plain HTTP, it receives the whole address of the document, and its own user name and password.
    """
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    client = HttpClient(Deadline(QUICK), proxies={"http": f"http://user:word@{server.host}"})
    with pytest.raises(StatusError):
        client.open(parse_address("http://mirror.example/debian", allow_plain=True))
    assert server.requests[0].path == "http://mirror.example:80/debian"
    assert server.requests[0].headers["host"] == "mirror.example:80"
    assert server.requests[0].headers["proxy-authorization"] == f"Basic {b64encode(b'user:word').decode()}"


@pytest.mark.parametrize("bypassed", ["", "mirror.example"])
def test_a_proxy_is_bypassed(monkeypatch: pytest.MonkeyPatch, server: FakeServer, bypassed: str) -> None:
    """This machine is never reached through a proxy, and neither are the hosts in ``no_proxy``."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", bypassed)
    client = HttpClient(Deadline(QUICK))
    assert read(client, server) == DATA
    assert (client._proxy(parse_address("http://mirror.example/", allow_plain=True)) == "") is bool(bypassed)


@pytest.mark.parametrize("proxy", ["http://127.0.0.1:port", "http://", ":8080", "http://[::1"])
def test_a_proxy_without_a_valid_address_is_an_error(
    monkeypatch: pytest.MonkeyPatch, client: HttpClient, proxy: str
) -> None:
    """A proxy address that is invalid or has no host is an error. A missing host does not mean this machine."""
    monkeypatch.setenv("https_proxy", proxy)
    with pytest.raises(UnreachableError, match="the proxy's address"):
        client.get(parse_address("https://registry.example.com/"))


@pytest.mark.parametrize("trusted", [True, False])
def test_a_certificate_must_be_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, client: HttpClient, trusted: bool
) -> None:
    """J05: certificates are verified against the authorities in SSL_CERT_FILE, also through a proxy."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("registry.example.com").configure_cert(context)
    monkeypatch.setenv("SSL_CERT_FILE" if trusted else "SSL_OTHER", str(tmp_path / "ca.pem"))
    assert _through_tunnel(monkeypatch, client, context) == ("404" if trusted else "untrusted")


def test_a_certificate_must_be_for_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, client: HttpClient
) -> None:
    """J05: a certificate for another host is refused, even from a trusted authority."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("other.example.com").configure_cert(context)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    assert _through_tunnel(monkeypatch, client, context) == "untrusted"


def _through_tunnel(monkeypatch: pytest.MonkeyPatch, client: HttpClient, context: ssl.SSLContext) -> str:
    """Request a page through a proxy. Return the status, ``untrusted``, or the message of another error."""
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        monkeypatch.setenv("https_proxy", f"127.0.0.1:{proxy.getsockname()[1]}")
        thread = threading.Thread(target=_have_nothing, args=(proxy, context))
        thread.start()
        try:
            response = client.get(parse_address("https://registry.example.com/"))
            response.close()
            return str(response.status)
        except UnreachableError as error:
            return "untrusted" if error.untrusted and "certificate is not trusted" in str(error) else str(error)
        finally:
            thread.join()


def _refuse_tunnel(proxy: socket.socket, seen: list[bytes]) -> None:
    connection, _ = proxy.accept()
    with connection:
        seen.append(connection.recv(4096))
        connection.sendall(b"HTTP/1.1 403 Forbidden\r\n\r\n")


def _have_nothing(proxy: socket.socket, context: ssl.SSLContext) -> None:
    """Act as a proxy, and as the server behind it, which responds with 404."""
    connection, _ = proxy.accept()
    with suppress(ssl.SSLError), connection:
        connection.recv(4096)
        connection.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
        with context.wrap_socket(connection, server_side=True) as channel:
            channel.recv(4096)
            channel.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
