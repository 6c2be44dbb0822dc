"""Measure what egress adds to a streamed answer: through the relay and the proxy, compared with direct connections.

A server sends an answer in pieces, each with the time at which it was sent. *Paced* answers have a piece every few
milliseconds, like those of models, and show the delay of a piece. Answers *at once* are sent as fast as possible, and
show the throughput. Each answer uses a new connection, so the delay of the first piece includes connecting.
"""

from __future__ import annotations

import json
import re
import socket
import ssl
import statistics
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPResponse
from typing import TYPE_CHECKING, Final

import trustme
from report import Table, within

from securebench.egress.gateway import EgressSession, Gateway
from securebench.egress.model import EgressPlan, Provider, RelayPlan
from securebench.egress.rules import ProxyRules
from securebench.trials import TrialId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

HOST: Final = "api.example.test"
_COLUMNS = ("way", "first piece, ms", "a piece, ms", "worst of 100, ms", "at once, MB/s", "x direct")
_BODY: Final = json.dumps({"model": "m", "input": [], "stream": True, "store": False}).encode()
_PADDING: Final = "x" * 400
_END: Final = {"type": "response.completed", "response": {"usage": {"input_tokens": 1, "output_tokens": 1}}}
_ROOM: Final = 10**12
SHARE_BOUND: Final = 0.6
"""The share of a direct connection's rate that the relay must reach."""
_SECONDS: Final = 30.0
"""Time limit of each socket operation."""
_WHOLE: Final = re.compile(rb".*\r\ncontent-length: *(?P<length>\d+).*?\r\n\r\n(?P<body>.*)", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Answer:
    """How an answer is sent: the number of pieces, and the pause in seconds before each piece."""

    pieces: int
    pause: float


class Server:
    """A provider that answers every request as ``answer`` describes, over plain HTTP or TLS."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.answer = Answer(1, 0)
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Accept no more connections."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        opened = self._context.wrap_socket(connection, server_side=True) if self._context else connection
        with suppress(OSError), opened:
            while _request(opened):
                self._respond(opened)

    def _respond(self, connection: socket.socket) -> None:
        head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall(head.encode())
        for _ in range(self.answer.pieces):
            if self.answer.pause:
                time.sleep(self.answer.pause)
            delta = {"type": "response.output_text.delta", "delta": _PADDING, "sent": time.perf_counter()}
            connection.sendall(_piece(delta))
        connection.sendall(_piece(_END) + b"0\r\n\r\n")


def _request(connection: socket.socket) -> bool:
    """Read a whole request. Return ``False`` if the connection was closed instead."""
    data = b""
    while not (found := _WHOLE.match(data)) or len(found["body"]) < int(found["length"]):
        more = connection.recv(65536)
        if not more:
            return False
        data += more
    return True


def _piece(event: Mapping[str, object]) -> bytes:
    data = f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
    return b"%x\r\n%s\r\n" % (len(data), data)


@dataclass(slots=True)
class Figures:
    """Measurements of a paced answer and of an answer at once.

    ``first`` is the seconds until the paced answer's first piece arrives, without the pause before it. ``delays`` are
    the seconds from sending to receiving each later piece. ``rate`` is the bytes per second of the answer at once.
    """

    first: float
    delays: list[float]
    rate: float


def table(*, rounds: int, pieces: int) -> Table:
    """Measure the kinds of connections in turn, ``rounds`` times each. A paced answer has ``pieces`` pieces."""
    found = Table(f"A streamed answer (medians of {rounds})", _COLUMNS)
    with _ways() as ways:
        taken: dict[str, list[Figures]] = {name: [] for name in ways}
        for _ in range(rounds):
            for name, (server, connect) in ways.items():
                taken[name].append(_measured(server, connect, pieces))
    direct = ""
    for name, figures in taken.items():
        direct = name if name.startswith("direct") else direct
        *row, share = _row(figures, taken[direct])
        found.add(name, *row, within(share, SHARE_BOUND, at_least=True) if name == "relay" else share)
    found.notes.append(
        "'a piece' is the time from sending to receiving a piece. Pieces are sent 5 ms apart; models are slower."
    )
    return found


def _row(figures: list[Figures], direct: list[Figures]) -> list[float]:
    delays = sorted(delay for each in figures for delay in each.delays)
    rate, floor = (statistics.median(each.rate for each in some) for some in (figures, direct))
    return [
        1000 * statistics.median(each.first for each in figures),
        1000 * statistics.median(delays),
        1000 * delays[int(len(delays) * 0.99) - 1],
        rate / 1e6,
        rate / floor,
    ]


@contextmanager
def _ways() -> Iterator[dict[str, tuple[Server, Callable[[], socket.socket]]]]:
    """Yield the kinds of connection by name, each with its server and a function that connects to it."""
    authority = trustme.CA()
    context, trust = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert(HOST).configure_cert(context)
    authority.configure_trust(trust)
    with ExitStack() as stack:
        plain, secure = Server(), Server(context)
        rules = ProxyRules(names={HOST: ("127.0.0.1",)}, ports={443: secure.port}, trusted=("127.0.0.0/8",))
        gateway = Gateway(lambda _line: None, rules=rules)
        for opened in (plain, secure, gateway):
            stack.callback(opened.close)
        relay = _port(stack.enter_context(gateway.open(TrialId("relay"), EgressPlan(relay=_plan(plain.port)))))
        proxy = _port(stack.enter_context(gateway.open(TrialId("proxy"), EgressPlan(domains=(HOST,)))))
        yield {
            "direct, HTTP": (plain, lambda: _connected(plain.port)),
            "relay": (plain, lambda: _connected(relay)),
            "direct, TLS": (secure, lambda: trust.wrap_socket(_connected(secure.port), server_hostname=HOST)),
            "proxy, TLS": (secure, lambda: trust.wrap_socket(_tunnel(proxy), server_hostname=HOST)),
        }


def _plan(port: int) -> RelayPlan:
    return RelayPlan(
        provider=Provider.OPENAI,
        base_url=f"http://127.0.0.1:{port}/v1",
        key="sk-bench",
        model="m",
        requests=_ROOM,
        tokens=_ROOM,
        bytes=_ROOM,
    )


def _port(session: EgressSession) -> int:
    """Serve the session's forwarded port on a new port of this host, and return that port.

    Connections to this port are as fast as connections to a forwarded port in a sandbox.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    port = int(listener.getsockname()[1])
    session.forwarded_ports[0].serve(listener)
    return port


def _connected(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), _SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _tunnel(port: int) -> socket.socket:
    connection = _connected(port)
    connection.sendall(f"CONNECT {HOST}:443 HTTP/1.1\r\nHost: {HOST}:443\r\n\r\n".encode())
    answer = connection.recv(65536)
    if b" 200 " not in answer.partition(b"\r\n")[0]:
        raise SystemExit(f"the proxy answered {answer!r}, so the figures would be meaningless")
    return connection


def _measured(server: Server, connect: Callable[[], socket.socket], pieces: int) -> Figures:
    server.answer = Answer(pieces, 0.005)
    started = time.perf_counter()
    arrivals = [(arrived, sent) for arrived, sent, _ in _answer_pieces(connect)]
    server.answer = Answer(20 * pieces, 0)
    begun = time.perf_counter()
    size = sum(length for _, _, length in _answer_pieces(connect))
    rate = size / (time.perf_counter() - begun)
    return Figures(arrivals[0][0] - started - 0.005, [arrived - sent for arrived, sent in arrivals[1:]], rate)


def _answer_pieces(connect: Callable[[], socket.socket]) -> Iterator[tuple[float, float, int]]:
    """Request an answer. For each piece, yield when it arrived, when it was sent, and its length in bytes."""
    head = f"POST /v1/responses HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\n"
    with connect() as connection:
        connection.sendall(f"{head}Content-Length: {len(_BODY)}\r\n\r\n".encode() + _BODY)
        response = HTTPResponse(connection)
        response.begin()
        for line in response:
            if line.startswith(b"data: "):
                event = json.loads(line[6:])
                if event == _END:
                    return
                yield time.perf_counter(), event["sent"], len(line)
    raise SystemExit("an answer was incomplete, so the figures would be meaningless")
