"""Parsing of requests to the proxy, and its reaction to arbitrary data."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import TYPE_CHECKING

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_hellos import hello
from securebench.egress.proxy.decisions import Ledger, ProxyAttempt, Reason
from securebench.egress.proxy.request import UnreadableError, end_to_end, read
from securebench.egress.proxy.server import Proxy
from securebench.egress.rules import Caps, ProxyRules
from securebench.testing.egress_world import HOST
from securebench.trials import TrialId

if TYPE_CHECKING:
    from securebench.resources import JsonValue

REASONS = frozenset(Reason)
CAPS = Caps(head_seconds=0.5, idle_seconds=0.5, connection_bytes=10_000)
TOKENS = st.sampled_from(
    [
        *("GET", "POST", "CONNECT", " ", "\r\n", "\n", "\t", ":", "/", "http://", "https://", "@", "[", "]", "..", "#"),
        *(HOST, f"{HOST}:443", f"http://{HOST}/", "127.0.0.1", "0x7f.1", "HTTP/1.1", "HTTP/1.0", "HTTP/9.9", "Host: "),
        *("Content-Length: 5", "Content-Length: -1", "Transfer-Encoding: chunked", "5\r\nabcde\r\n", "0\r\n\r\n"),
        *("Connection: upgrade", "Upgrade: h2c", "Expect: 100-continue", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\0"),
        *(hello(HOST).decode("latin-1"), "x" * 500, "\x80\xff", "%"),
    ]
)
BEGUN = st.sampled_from(
    [
        b"",
        f"CONNECT {HOST}:443 HTTP/1.1\r\nHost: x\r\n\r\n".encode(),
        f"CONNECT {HOST}:443 HTTP/1.1\r\nHost: x\r\n\r\n".encode() + hello(HOST),
        f"GET http://{HOST}/ HTTP/1.1\r\nHost: {HOST}\r\n".encode(),
        f"POST http://{HOST}/ HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 5\r\n\r\nab".encode(),
        f"POST http://{HOST}/ HTTP/1.1\r\nHost: {HOST}\r\nTransfer-Encoding: chunked\r\n\r\n".encode(),
    ]
)


def parse_request(request: str) -> h11.Request:
    """Return ``request``, the head of a request, as h11 parses it."""
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(request.encode())
    event = connection.next_event()
    assert isinstance(event, h11.Request)
    return event


@pytest.mark.parametrize(
    ("line", "attempt", "target"),
    [
        ("CONNECT Api.Example.Test.:443", ProxyAttempt("connect", HOST, 443), ""),
        ("CONNECT api.example.test", ProxyAttempt("connect", HOST, 0), ""),
        ("GET http://api.example.test", ProxyAttempt("http", HOST, 80), "/"),
        ("GET HTTP://api.example.test:80/a//b?c", ProxyAttempt("http", HOST, 80), "/a//b?c"),
        ("GET http://api.example.test?q=http://other/", ProxyAttempt("http", HOST, 80), "/?q=http://other/"),
        ("GET http://api.example.test:8080/", ProxyAttempt("http", HOST, 8080), "/"),
    ],
)
def test_a_request_is_read(line: str, attempt: ProxyAttempt, target: str) -> None:
    """A request is parsed into the canonical host, the port, and the request target for the server."""
    wanted = read(parse_request(f"{line} HTTP/1.1\r\nHost: x\r\n\r\n"))
    assert (wanted.attempt, wanted.target) == (attempt, target)


def test_what_cannot_be_read_is_logged_as_it_came() -> None:
    """An invalid host is logged in shortened form, with ``?`` for unprintable characters."""
    with pytest.raises(UnreadableError) as caught:
        read(parse_request(f"CONNECT {'a@' * 300}b:443 HTTP/1.1\r\nHost: x\r\n\r\n"))
    assert caught.value.attempt.host == ("a@" * 300)[:253]
    assert ProxyAttempt.of("http", "a\x1b[2Jé\n").host == "a?[2J??"


def test_headers_that_connection_names_are_dropped_but_never_those_that_frame_a_body() -> None:
    """``Connection`` cannot remove the length of a body. Without it, the server could read the body as a request."""
    headers = [(b"connection", b"x-a, Content-Length"), (b"x-a", b"1"), (b"content-length", b"3"), (b"x-b", b"2")]
    assert end_to_end(headers) == [(b"content-length", b"3"), (b"x-b", b"2")]


async def served(pieces: list[bytes]) -> list[dict[str, JsonValue]]:
    """Send ``pieces`` to a proxy, wait until it closes the connection, and return its log."""
    lines: list[dict[str, JsonValue]] = []
    sink = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = sink.sockets[0].getsockname()[1]
    rules = ProxyRules(names={HOST: ("127.0.0.1",)}, ports={80: port, 443: port}, trusted=("127.0.0.1/32",))
    proxy = Proxy([HOST], Ledger(TrialId("task"), lines.append, CAPS), rules)
    ours, theirs = socket.socketpair()
    serving = asyncio.ensure_future(proxy.serve(*await asyncio.open_connection(sock=theirs)))
    reader, writer = await asyncio.open_connection(sock=ours)
    try:
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(0)
        writer.write_eof()
        await asyncio.wait_for(asyncio.gather(reader.read(), serving, return_exceptions=False), 20)
    except ConnectionError:
        await asyncio.wait_for(serving, 20)
    finally:
        writer.close()
        sink.close()
    return lines


@given(BEGUN, st.lists(TOKENS.map(lambda text: text.encode("latin-1")) | st.binary(max_size=40), max_size=25))
def test_whatever_comes_is_served_or_refused(begun: bytes, pieces: list[bytes]) -> None:
    """No data makes the proxy raise, hang, log an unknown reason, or allow a host other than the allowed one."""
    began = time.monotonic()
    lines = asyncio.run(served([begun, *pieces]))
    assert time.monotonic() - began < 60
    assert {line["reason"] for line in lines} <= REASONS
    assert {line["host"] for line in lines if line["decision"] == "allowed"} <= {HOST}
