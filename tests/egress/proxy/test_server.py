"""The proxy of a gateway: what an agent may reach, and known ways to bypass the restrictions."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from contextlib import suppress
from ipaddress import ip_address
from typing import TYPE_CHECKING

import pytest

from client_hellos import EARLY_DATA, ENCRYPTED, hello
from securebench.egress.model import EgressPlan
from securebench.egress.rules import Caps
from securebench.testing.egress_world import HOST, SECONDS, ask, connected, port_of, read_all, secured, world
from securebench.trials import TrialId

if TYPE_CHECKING:
    from collections.abc import Iterator

    from securebench.egress.gateway import EgressSession
    from securebench.testing.egress_world import EgressWorld

OTHER = "evil.example.test"
INSIDE = {
    "private.example.test": ("10.0.0.1",),
    "metadata.example.test": ("169.254.169.254",),
    "carrier.example.test": ("100.64.0.1",),
    "itself.example.test": ("127.0.0.2",),
    "itself6.example.test": ("::1",),
    "unique.example.test": ("fd00:ec2::254",),
    "mapped.example.test": ("::ffff:7f00:1",),
    "mixed.example.test": ("127.0.0.1", "192.168.0.1"),
    "scoped.example.test": ("fe80::1%1",),
}
PLAN = EgressPlan(domains=(HOST, "xn--bcher-kva.test", *INSIDE))


@pytest.fixture(scope="module")
def outside() -> Iterator[EgressWorld]:
    """Yield a world with an allowed host, a host that is not allowed, and names with internal addresses."""
    with world(HOST, OTHER, f"sub.{HOST}", addresses=INSIDE) as made:
        yield made


@pytest.fixture
def session(outside: EgressWorld) -> Iterator[EgressSession]:
    """Yield a session for :data:`PLAN`, with an empty log."""
    outside.log.clear()
    with outside.gateway.open(TrialId("task"), PLAN) as opened:
        yield opened


@pytest.fixture
def port(session: EgressSession) -> int:
    """Return the local port of the session's proxy."""
    return port_of(session)


def refused(outside: EgressWorld, port: int, request: str) -> tuple[int, str]:
    """Send a request that must be refused. Return the status of the response and the logged reason."""
    before = outside.tls.connections, outside.plain.connections
    answer = ask(port, request.encode("latin-1"))
    (_, reason), *others = outside.decisions()
    assert not others
    assert (outside.tls.connections, outside.plain.connections) == before
    return int(answer.split()[1]), str(reason)


def connect(target: str) -> str:
    """Return a request for a tunnel to ``target``."""
    return f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n"


def pour(connection: socket.socket) -> bool:
    """Send 10,000 bytes to a server that echoes them. Return whether any data came back."""
    with suppress(OSError):
        connection.sendall(bytes(10_000))
        return bool(connection.recv(65536))
    return False


def is_served(port: int) -> bool:
    """Return whether the proxy answers a request on a new connection."""
    with suppress(OSError):
        return bool(ask(port, connect(f"{OTHER}:443").encode()))
    return False


def get(url: str, host: str = HOST, more: str = "") -> str:
    """Return a GET request for ``url``. ``more`` has further header lines."""
    return f"GET {url} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n"


@pytest.mark.parametrize("host", [HOST, f"sub.{HOST}"])
def test_an_allowed_host_and_its_subdomains_are_reached(outside: EgressWorld, port: int, host: str) -> None:
    """A tunnel to an allowed domain or its subdomain carries TLS from end to end."""
    with secured(port, outside.trust, host) as connection:
        connection.sendall(b"ping")
        assert connection.recv(4) == b"ping"


@pytest.mark.parametrize("target", [f"{HOST.upper()}:443", f"{HOST}.:443"])
def test_case_and_the_last_dot_of_a_name_make_no_difference(outside: EgressWorld, port: int, target: str) -> None:
    """An allowed name in upper case or with a trailing dot is allowed."""
    with outside.trust.wrap_socket(connected(port, target), server_hostname=HOST) as connection:
        connection.sendall(b"ping")
        assert connection.recv(4) == b"ping"


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        (f"{OTHER}:443", "domain_not_allowed"),
        (f"{HOST}.evil.test:443", "domain_not_allowed"),
        (f"not{HOST}:443", "domain_not_allowed"),
        ("xn--bcher-kvb.test:443", "domain_not_allowed"),
        ("127.0.0.1:443", "host_is_address"),
        ("2130706433:443", "host_is_address"),
        ("0x7f.1:443", "host_is_address"),
        ("0177.0.0.1:443", "host_is_address"),
        ("[::1]:443", "host_is_address"),
        ("[::ffff:7f00:1]:443", "host_is_address"),
        (f"{HOST}@{OTHER}:443", "host_invalid"),
        (f"{OTHER}:443@{HOST}:443", "host_invalid"),
        (f"{HOST}:443:443", "host_invalid"),
        (f"{HOST}%00.evil.test:443", "host_invalid"),
        (f"{HOST}:22", "port_refused"),
        (f"{HOST}:25", "port_refused"),
        (f"{HOST}:80", "port_refused"),
        (f"{HOST}:2375", "port_refused"),
        (f"{HOST}:0443", "port_refused"),
        (f"{HOST}:65979", "port_refused"),  # 443 modulo 65536
        (f"{HOST}:", "port_refused"),
        (HOST, "port_refused"),
    ],
)
def test_a_tunnel_elsewhere_is_denied_and_logged(outside: EgressWorld, port: int, target: str, reason: str) -> None:
    """A tunnel to another host, an address, another port or a malformed target gets status 403 and no connection."""
    assert refused(outside, port, connect(target)) == (403, reason)


@pytest.mark.parametrize("host", INSIDE)
def test_a_name_that_leads_inside_is_denied_and_logged(outside: EgressWorld, port: int, host: str) -> None:
    """An allowed name is refused if at least one of its addresses is refused."""
    assert refused(outside, port, connect(f"{host}:443")) == (403, "address_refused")
    assert ip_address(str(outside.log[0]["address"])) == ip_address(INSIDE[host][-1])


@pytest.mark.parametrize(
    ("request_text", "status", "reason"),
    [
        (get(f"http://{OTHER}/", OTHER), 403, "domain_not_allowed"),
        (get(f"http://{HOST}/", OTHER), 403, "host_mismatch"),
        (get(f"http://{HOST}/", f"{HOST}:81"), 403, "host_mismatch"),
        (get(f"http://{HOST}/", "[::1]"), 403, "host_mismatch"),
        (get(f"http://{HOST}:8080/"), 403, "port_refused"),
        (get(f"http://{HOST}:443/"), 403, "port_refused"),
        (get(f"http://{HOST}@{OTHER}/"), 403, "host_invalid"),
        (get(f"http://{OTHER}\\@{HOST}/"), 403, "host_invalid"),
        (get("http://169.254.169.254/latest/meta-data/"), 403, "host_is_address"),
        (get("http:///"), 403, "host_invalid"),
        (get(f"https://{HOST}/"), 403, "scheme_refused"),
        (get(f"ftp://{HOST}/"), 403, "scheme_refused"),
        (get("/"), 400, "request_invalid"),
        (get(f"http://{HOST}/#part"), 400, "request_invalid"),
        (get(f"http://{HOST}/", more="Upgrade: websocket\r\nConnection: upgrade\r\n"), 403, "upgrade_refused"),
        (get(f"http://{HOST}/", more="Upgrade: h2c\r\n"), 403, "upgrade_refused"),
        (get(f"http://{HOST}/", more="Content-Length: 3\r\nTransfer-Encoding: chunked\r\n"), 400, "request_invalid"),
        (get(f"http://{HOST}/", more="Content-Length: 3\r\nContent-Length: 4\r\n"), 400, "request_invalid"),
        (get(f"http://{HOST}/", more="Transfer-Encoding: gzip\r\n"), 400, "request_invalid"),
        (get(f"http://{HOST}/", more=f"Host: {OTHER}\r\n"), 400, "request_invalid"),
        (get(f"http://{HOST}/", more=" folded: \0\r\n"), 400, "request_invalid"),
        (f"CONNECT {HOST}:443 HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 1\r\n\r\n", 400, "request_invalid"),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "request_invalid"),
        (f"GET http://{HOST}/ HTTP/1.1\r\nX: {'x' * 70_000}", 400, "request_invalid"),
    ],
)
def test_a_request_elsewhere_is_denied_and_logged(
    outside: EgressWorld, port: int, request_text: str, status: int, reason: str
) -> None:
    """A request for another host, port, scheme or protocol, or with an ambiguous host or length, reaches no server."""
    assert refused(outside, port, request_text) == (status, reason)


def test_a_denial_says_what_would_have_to_be_allowed(outside: EgressWorld, port: int) -> None:
    """A denial names the host that is not allowed, and does not reveal which domains are allowed."""
    answer = ask(port, connect(f"{OTHER}:443").encode()).decode()
    assert f"{OTHER} is not in allowed_domains" in answer
    assert HOST not in answer.replace(OTHER, "")


def test_a_name_that_is_not_allowed_is_never_resolved(outside: EgressWorld, port: int) -> None:
    """A name that is not allowed is refused before it is resolved, so lookups cannot send data to a name server."""
    assert refused(outside, port, connect("secret.unknown.invalid:443")) == (403, "domain_not_allowed")


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (hello(OTHER), "server_name_mismatch"),
        (hello(f"sub.{HOST}"), "server_name_mismatch"),
        (hello(HOST, ENCRYPTED), "server_name_encrypted"),
        (hello(HOST, EARLY_DATA), "early_data_refused"),
        (b"GET / HTTP/1.1\r\n\r\n", "tls_required"),
        (b"SSH-2.0-x\r\n", "tls_required"),
    ],
)
def test_a_tunnel_for_something_else_is_denied_and_logged(
    outside: EgressWorld, port: int, first: bytes, reason: str
) -> None:
    """A tunnel to an allowed host is refused if it does not begin with an acceptable TLS ClientHello for that host."""
    with connected(port) as connection:
        connection.sendall(first)
        assert read_all(connection)[:1] == b"\x15"
    assert outside.decisions() == [("denied", reason)]
    assert outside.log[0]["host"] == HOST


def test_tls_to_an_address_has_no_name_and_is_denied(outside: EgressWorld, port: int) -> None:
    """A tunnel that begins with TLS without a server name, as Python's own TLS can send it, is refused."""
    anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    with connected(port) as connection, pytest.raises(OSError, match=r"(?i)alert.access.denied"):
        anybody.wrap_socket(connection)
    assert outside.decisions() == [("denied", "server_name_missing")]


def test_a_second_first_message_for_another_host_cuts_the_tunnel() -> None:
    """If the client sends a second ClientHello with another name, the proxy cuts the tunnel and logs this."""
    with world(HOST, bare=True) as other, other.gateway.open(TrialId("task"), PLAN) as session:
        with connected(port_of(session)) as connection:
            connection.sendall(hello(HOST))
            assert connection.recv(65536) == hello(HOST)
            connection.sendall(hello(OTHER))
            assert read_all(connection) == b""
        assert other.decisions(2) == [("allowed", "allowed"), ("closed", "server_name_mismatch")]


def test_a_message_in_small_pieces_is_waited_for(outside: EgressWorld, port: int) -> None:
    """A ClientHello that arrives a few bytes at a time is accepted."""
    with connected(port) as connection:
        for at in range(0, len(hello(HOST)), 5):
            connection.sendall(hello(HOST)[at : at + 5])
        read_all(connection)
    assert outside.decisions()[0] == ("allowed", "allowed")


def test_each_request_on_one_connection_is_judged(outside: EgressWorld, port: int) -> None:
    """After an allowed request, a request for another host on the same connection is denied.

    A client that follows a redirect may send such a request.
    """
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
        connection.sendall(get(f"http://{HOST}/one").encode())
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        connection.sendall(get(f"http://{OTHER}/two", OTHER).encode())
        assert b"HTTP/1.1 403" in read_all(connection)
    assert [reason for _, reason in outside.decisions(3)] == ["allowed", "done", "domain_not_allowed"]


def test_pipelined_requests_are_judged_one_by_one(outside: EgressWorld, port: int) -> None:
    """Of two requests in one packet, the allowed one is served and the other one is denied."""
    both = get(f"http://{HOST}/one") + get(f"http://{OTHER}/two", OTHER)
    answer = ask(port, both.encode())
    assert answer.count(b"HTTP/1.1 200") == answer.count(b"HTTP/1.1 403") == 1


def test_only_headers_for_the_server_reach_it(outside: EgressWorld, port: int) -> None:
    """Hop-by-hop headers, and headers that ``Connection`` names, are removed. Other headers reach the server."""
    more = "Proxy-Authorization: Basic c2VjcmV0\r\nProxy-Connection: x\r\nTE: trailers\r\nKeep-Alive: 1\r\n"
    named = "Connection: X-Mine, close\r\nX-Mine: 1\r\nX-Kept: 2\r\n"
    answer = ask(port, get(f"http://{HOST}/a?b=c", more=more + named).encode()).lower()
    _, _, seen = answer.partition(b"\r\n\r\n")
    assert seen.splitlines() == [
        b"get /a?b=c http/1.1",
        b"host: " + HOST.encode(),
        b"x-kept: 2",
        b"connection: close",
        b"",
    ]


def test_bodies_go_both_ways(outside: EgressWorld) -> None:
    """The chunked body of a request is forwarded after ``100 Continue``. A response without a length becomes chunked.

    The client does not receive the server's response 103.
    """

    def handle(connection: socket.socket) -> None:
        data = b""
        while not data.endswith(b"0\r\n\r\n"):
            data += connection.recv(65536)
        connection.sendall(b"HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + data)

    request = (
        f"POST http://{HOST}/ HTTP/1.1\r\nHost: {HOST}\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    with (
        world(HOST, plain=handle) as other,
        other.gateway.open(TrialId("task"), PLAN) as session,
        socket.create_connection(("127.0.0.1", port_of(session)), timeout=SECONDS) as connection,
    ):
        connection.sendall(request.encode())
        assert connection.recv(65536).startswith(b"HTTP/1.1 100")
        connection.sendall(b"3\r\nabc\r\n0\r\n\r\n")
        answer = b""
        while not answer.endswith(b"\r\n0\r\n\r\n\r\n0\r\n\r\n"):
            answer += connection.recv(65536)
    assert b"103" not in answer.split(b"\r\n\r\n")[0]
    assert b"transfer-encoding: chunked" in answer.lower()
    assert b"3\r\nabc" in answer


def test_an_answer_without_a_body_is_whole() -> None:
    """A response to HEAD has a length and no body, and the next request on the connection is served."""
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n"
    head = get(f"http://{HOST}/").replace("GET", "HEAD")

    def handle(connection: socket.socket) -> None:
        connection.sendall(connection.recv(65536) and answer)

    with world(HOST, plain=handle) as other, other.gateway.open(TrialId("task"), PLAN) as session:
        received = ask(port_of(session), (head + head + connect("evil.test:443")).encode())
    assert received.count(b"HTTP/1.1 200 OK") == received.lower().count(b"content-length: 5000") == 2
    assert received.count(b"HTTP/1.1 403") == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"not HTTP\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    ],
)
def test_a_server_that_speaks_no_http_is_a_bad_gateway(answer: bytes) -> None:
    """A missing or invalid response, or one that switches the protocol, is replaced by status 502."""
    with world(HOST, plain=lambda connection: connection.sendall(answer)) as other:
        with other.gateway.open(TrialId("task"), PLAN) as session:
            assert ask(port_of(session), get(f"http://{HOST}/").encode()).startswith(b"HTTP/1.1 502")
        assert [reason for _, reason in other.decisions(2)] == ["allowed", "broken"]


def test_a_host_without_a_server_is_a_failure_and_no_denial(outside: EgressWorld, port: int) -> None:
    """A server that cannot be reached is logged as ``failed`` and not as ``denied``."""
    with world(HOST) as other, other.gateway.open(TrialId("task"), PLAN) as session:
        other.plain.close()
        answer = ask(port_of(session), get(f"http://{HOST}/").encode())
        assert answer.startswith(b"HTTP/1.1 502")
        assert other.decisions() == [("failed", "unreachable")]


def test_a_name_without_an_address_is_a_failure(outside: EgressWorld) -> None:
    """An allowed name that cannot be resolved is logged as ``failed`` and not as ``denied``."""
    with outside.gateway.open(TrialId("other"), EgressPlan(domains=("nobody.invalid",))) as session:
        answer = ask(port_of(session), connect("nobody.invalid:443").encode())
    assert answer.startswith(b"HTTP/1.1 502")
    assert outside.decisions(task_id="other") == [("failed", "unresolved")]


@pytest.mark.parametrize(
    ("caps", "reason"),
    [
        (Caps(connection_bytes=100_000), "byte_limit"),
        (Caps(session_bytes=100_000), "byte_limit"),
        (Caps(connection_seconds=0.5), "time_limit"),
        (Caps(idle_seconds=0.2), "idle"),
    ],
)
def test_a_bound_cuts_a_tunnel_and_is_logged_and_counted(caps: Caps, reason: str) -> None:
    """The bytes of a connection and of a task, the time of a connection, and its time without data are limited."""
    with world(HOST, caps=caps) as other, other.gateway.open(TrialId("task"), PLAN) as session:
        with secured(port_of(session), other.trust) as connection:
            while pour(connection) and reason == "byte_limit":
                pass
            read_all(connection)
        assert other.decisions(2)[-1] == ("closed", reason)
        assert session.close().decisions == {"allowed": 1, reason: 1}


def test_bytes_are_bounded_for_a_whole_task() -> None:
    """The byte limit of a task cuts the connection that exceeds it, and also each later connection."""
    with world(HOST, caps=Caps(session_bytes=1000)) as other, other.gateway.open(TrialId("task"), PLAN) as session:
        port = port_of(session)
        for count in (1, 2):
            with suppress(OSError), secured(port, other.trust) as connection:
                assert not pour(connection)
            assert other.decisions(2 * count)[-1] == ("closed", "byte_limit")


def test_connections_at_once_are_bounded() -> None:
    """If a task has its maximum number of connections, a further one is closed at once and logged as denied.

    After one of the connections has ended, a new one is served.
    """
    with world(HOST, caps=Caps(connections=2)) as other, other.gateway.open(TrialId("task"), PLAN) as session:
        port = port_of(session)
        with connected(port), connected(port):
            assert ask(port, b"") == b""
            assert other.decisions() == [("denied", "too_many_connections")]
        deadline = time.monotonic() + SECONDS
        while not is_served(port):
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_who_says_nothing_is_not_waited_for_long() -> None:
    """A connection without a complete request, and a tunnel without data, are closed after ``head_seconds``."""
    with world(HOST, caps=Caps(head_seconds=0.2)) as other, other.gateway.open(TrialId("task"), PLAN) as session:
        port = port_of(session)
        assert ask(port, b"GET http://") == b""
        with connected(port) as connection:
            assert read_all(connection)[:1] == b"\x15"
        assert other.decisions() == [("denied", "tls_required")]


def test_what_is_logged_is_bounded_and_all_of_it_counted() -> None:
    """The number of log lines and of host names in a report is limited, but every decision is counted."""
    caps = Caps(log_lines=5, hosts=3)
    with world(HOST, caps=caps) as other, other.gateway.open(TrialId("task"), PLAN) as session:
        port = port_of(session)
        for number in range(8):
            ask(port, connect(f"a{number}.test:443").encode())
        report = session.close()
    assert len(other.log) == 5
    assert report.decisions == {"domain_not_allowed": 8}
    assert report.hosts == {"a0.test": 1, "a1.test": 1, "a2.test": 1, "(others)": 5}


def test_a_line_of_the_log_says_who_what_where_and_why(outside: EgressWorld, port: int) -> None:
    """Each decision is one flat object in the log. The end of a connection is another, with bytes and duration."""
    with secured(port, outside.trust) as connection:
        connection.sendall(b"ping")
        connection.recv(4)
    outside.decisions(2)
    decided, ended = outside.log
    assert str(decided["time"]).endswith("+00:00")
    known = {"task_id": "task", "trial": 1, "kind": "connect", "host": HOST, "port": 443}
    assert decided == {
        **known, "time": decided["time"], "decision": "allowed", "reason": "allowed", "address": "127.0.0.1"
    }  # fmt: skip
    assert ended.keys() == {*known, "time", "decision", "reason", "bytes_up", "bytes_down", "seconds"}
    assert isinstance(ended["bytes_up"], int)
    assert ended["bytes_up"] > len(b"ping")


def test_a_transfer_is_whole() -> None:
    """Megabytes through a tunnel arrive complete, even if the client starts to read them late."""
    sent = bytes(range(256)) * 20_000

    def handle(connection: socket.socket) -> None:
        connection.sendall(connection.recv(1) and sent)

    with (
        world(HOST, tls=handle) as other,
        other.gateway.open(TrialId("task"), PLAN) as session,
        secured(port_of(session), other.trust) as connection,
    ):
        connection.sendall(b"x")
        threading.Event().wait(0.2)  # the client reads nothing during this time
        assert read_all(connection) == sent
