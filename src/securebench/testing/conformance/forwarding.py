"""Checks: forwarded ports. A sandbox reaches the server of each port, and nothing else."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from securebench.errors import ConfigError
from securebench.sandboxes.base import ForwardedPort, Mount
from securebench.sandboxes.enforcement import DriverFeature
from securebench.sandboxes.spec_rules import MAX_FORWARDED_PORTS
from securebench.testing.addresses import own_addresses, resolvers
from securebench.testing.conformance.bench import (
    TIMEOUT_SECONDS,
    Bench,
    CheckRegistry,
    probe_command,
    read_until,
    require,
    require_equal,
    require_raises,
    workspace_path,
)
from securebench.testing.conformance.collected_tree import read_collected
from securebench.testing.conformance.isolation import FORBIDDEN, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

CHECKS = CheckRegistry()

PORT = 3128
_OTHER_PORT = 8788
_SHORT = 1.5
_UNREACHABLE = {"ENETUNREACH", "EHOSTUNREACH", "EADDRNOTAVAIL", "ECONNREFUSED"}


class Server:
    """A server for forwarded ports: it sends data back, prefixed with ``name``. ``close`` closes its listeners.

    ``ended`` is set when a connection has ended.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.listeners: list[socket.socket] = []
        self.ended = threading.Event()

    def forwarded_port(self, port: int = PORT) -> ForwardedPort:
        """Return a forwarded port that leads to this server."""
        return ForwardedPort(port, self.serve)

    def serve(self, listener: socket.socket) -> None:
        """Serve a listening socket."""
        self.listeners.append(listener)
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def close(self) -> None:
        """Stop serving."""
        for listener in self.listeners:
            if listener.fileno() >= 0:
                listener.shutdown(socket.SHUT_RDWR)
                listener.close()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:  # the listener was closed
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(4096):
                    connection.sendall(f"{self.name}: ".encode() + data)
            except OSError:  # the client closed the connection
                pass
        self.ended.set()


@contextmanager
def serving(name: str = "outside") -> Iterator[Server]:
    """Yield a server, which is closed afterwards."""
    server = Server(name)
    try:
        yield server
    finally:
        server.close()


def called(bench: Bench, *words: str, **options: Any) -> str:
    """Return what a process in a new sandbox receives from a forwarded port: an answer, or the name of an error."""
    return bench.output("call", *(words or (str(PORT), "hello")), **options)


@CHECKS.needing(DriverFeature.FORWARDED_PORTS)
def a_port_answers_from_the_start(bench: Bench) -> None:
    """As soon as a process starts, it can connect to a forwarded port, in persistent and ephemeral sandboxes."""
    for persistent in (False, True):
        with serving() as server:
            answer = called(bench, forwarded_ports=(server.forwarded_port(),), persistent=persistent)
        require_equal(answer, "outside: hello", "the answer")


@CHECKS.needing(DriverFeature.FORWARDED_PORTS)
def each_port_reaches_its_own_server(bench: Bench) -> None:
    """Each of several forwarded ports leads to its own server, for any number of connections."""
    with serving("one") as one, serving("two") as two:
        sandbox = bench.sandbox(
            forwarded_ports=(one.forwarded_port(), two.forwarded_port(_OTHER_PORT)), persistent=True
        )
        for port, name in ((PORT, "one"), (_OTHER_PORT, "two"), (PORT, "one")):
            output = sandbox.run(probe_command("call", str(port), "hello")).stdout
            require_equal(output, f"{name}: hello\n".encode(), f"the answer at port {port}")


@CHECKS.needing(DriverFeature.FORWARDED_PORTS)
def each_container_has_its_own_ports(bench: Bench) -> None:
    """Each command of an ephemeral sandbox has its own forwarded port; commands of a persistent sandbox share one."""
    for persistent, expected in ((False, 2), (True, 1)):
        with serving() as server:
            sandbox = bench.sandbox(forwarded_ports=(server.forwarded_port(),), persistent=persistent)
            for _ in range(2):
                require_equal(sandbox.run(probe_command("call", str(PORT), "x")).stdout, b"outside: x\n", "the answer")
            require_equal(len(server.listeners), expected, "forwarded ports that were served")


@CHECKS.needing(DriverFeature.FORWARDED_PORTS)
def with_a_port_there_is_still_only_loopback(bench: Bench) -> None:
    """With a forwarded port, a sandbox has only the loopback interface, no route, and no other socket (J03, J12)."""
    for persistent in (False, True):
        with serving() as server:
            found = json.loads(
                bench.output("network", forwarded_ports=(server.forwarded_port(),), persistent=persistent)
            )
        expected = {"interfaces": ["lo"], "listening": [f"127.0.0.1:{PORT}"], "others": 0, "routes": 0}
        require_equal(found, expected, "the network")


@CHECKS.needing(DriverFeature.FORWARDED_PORTS)
def with_a_port_nothing_more_is_allowed(bench: Bench) -> None:
    """Root in a sandbox with a forwarded port has no capabilities and cannot do anything forbidden (A22, I18)."""
    with serving() as server:
        options: dict[str, Any] = {"forwarded_ports": (server.forwarded_port(),), "user": ROOT}
        require_equal(json.loads(bench.output("attempt", *FORBIDDEN, **options)), [], "what root could do")
        require_equal(set(bench.facts(**options)["capabilities"].values()), {0}, "capabilities")


@CHECKS.needing(DriverFeature.FORWARDED_PORTS)
def with_a_port_the_host_cannot_be_reached(bench: Bench) -> None:
    """Even with a forwarded port, no other server of the host and no outside address can be reached (J01, J08)."""
    with serving() as server, socket.create_server(("", 0)) as hosts:
        sandbox = bench.sandbox(forwarded_ports=(server.forwarded_port(),), persistent=True)
        port = str(hosts.getsockname()[1])
        for address in ("127.0.0.1", *own_addresses(), "172.17.0.1", "169.254.169.254", "192.0.2.1", "2001:db8::1"):
            outcome = sandbox.run(probe_command("connect", address, port)).stdout.decode().strip()
            require(outcome in _UNREACHABLE, f"a connection to {address} was not refused: {outcome}")


@CHECKS.needing(DriverFeature.FORWARDED_PORTS)
def with_a_port_names_are_not_resolved(bench: Bench) -> None:
    """No DNS resolver can be reached, neither an engine's nor the host's, and no name is resolved (J04)."""
    with serving() as server:
        sandbox = bench.sandbox(forwarded_ports=(server.forwarded_port(),), persistent=True)
        for address in ("127.0.0.11", *resolvers()):
            outcome = sandbox.run(probe_command("ask", address, "53")).stdout.decode().strip()
            require(outcome in _UNREACHABLE, f"a DNS query to {address} was not refused: {outcome}")
        require_equal(sandbox.run(probe_command("resolve", "example.com")).stdout, b"unknown\n", "resolving a name")


@CHECKS.needing(DriverFeature.FORWARDED_PORTS)
def forwarded_ports_are_private(bench: Bench) -> None:
    """Two sandboxes can forward the same port, each to its own server. In a third, the port is closed (A24)."""
    with serving("one") as one, serving("two") as two:
        sandboxes = [
            bench.sandbox(forwarded_ports=(server.forwarded_port(),), persistent=True) for server in (one, two)
        ]
        sandboxes.append(bench.sandbox(forwarded_ports=(two.forwarded_port(_OTHER_PORT),), persistent=True))
        output = [sandbox.run(probe_command("call", str(PORT), "hello")).stdout for sandbox in sandboxes]
    require_equal(output, [b"one: hello\n", b"two: hello\n", b"ECONNREFUSED\n"], "the answers")


@CHECKS.needing(DriverFeature.FORWARDED_PORTS)
def listening_ports_are_private(bench: Bench) -> None:
    """With a forwarded port, other ports of the sandbox are unreachable from other sandboxes and the host."""
    with serving() as server:
        first, second = (bench.sandbox(forwarded_ports=(server.forwarded_port(),), persistent=True) for _ in range(2))
        process = first.open(probe_command("listen", str(_OTHER_PORT)))
        read_until(process, b"listening\n")
        outcome = second.run(probe_command("connect", "127.0.0.1", str(_OTHER_PORT))).stdout
        require_equal(outcome, b"ECONNREFUSED\n", "connecting to the other sandbox")
        require_raises(partial(socket.create_connection, ("127.0.0.1", _OTHER_PORT), 3), OSError)
        process.kill()


@CHECKS.needing(DriverFeature.FORWARDED_PORTS)
def connections_end_with_their_sandbox(bench: Bench) -> None:
    """A connection ends if its process times out or is killed, or its sandbox is closed. The server sees the end."""
    for persistent in (False, True):
        for ending in ("time", "kill", "close"):
            with serving() as server:
                sandbox = bench.sandbox(forwarded_ports=(server.forwarded_port(),), persistent=persistent)
                process = sandbox.open(probe_command("linger", str(PORT), timeout=_SHORT if ending == "time" else 60))
                read_until(process, b"outside: here\n")
                require(not server.ended.is_set(), "the connection ended before the process exited")
                {"time": process.wait, "kill": process.kill, "close": sandbox.close}[ending]()
                require(server.ended.wait(TIMEOUT_SECONDS), f"the connection outlived the sandbox ({ending})")


@CHECKS.needing(DriverFeature.FORWARDED_PORTS)
def a_port_can_be_closed_from_outside(bench: Bench) -> None:
    """Once the server of a forwarded port is closed, connections are refused, and nothing else changes."""
    with serving() as server:
        sandbox = bench.sandbox(forwarded_ports=(server.forwarded_port(),), persistent=True)
        require_equal(sandbox.run(probe_command("call", str(PORT), "x")).stdout, b"outside: x\n", "the answer")
    require_equal(
        sandbox.run(probe_command("call", str(PORT), "x")).stdout, b"ECONNREFUSED\n", "the closed forwarded port"
    )


@CHECKS.needing(DriverFeature.FORWARDED_PORTS, DriverFeature.IMAGE_TREE)
def ports_change_nothing_else(bench: Bench) -> None:
    """Mounts, a writable root and the collection of changes work as usual with forwarded ports."""
    mounts = (Mount(bench.shared(), workspace_path(), read_only=False),)
    directory = bench.output("library")
    with serving() as server, bench.driver.image_tree(bench.image) as tree:
        options: dict[str, Any] = {"forwarded_ports": (server.forwarded_port(),), "read_only": False, "user": ROOT}
        require_equal(called(bench, mounts=mounts, **options), "outside: hello", "the answer")
        sandbox = bench.sandbox(collect=directory, **options)
        require_equal(sandbox.run(probe_command("change", directory, "add")).stdout, b"add ok\n", "the change")
        pristine = Path(str(tree.root) + directory)
        require(b"added" in read_collected(sandbox.collected(), pristine), "the change was not collected")


@CHECKS.needing(DriverFeature.FORWARDED_PORTS)
def a_failing_server_prevents_the_sandbox(bench: Bench) -> None:
    """If setting up a forwarded port fails, the driver raises the error and closes the port."""
    given: list[socket.socket] = []

    def refuse(listener: socket.socket) -> None:
        given.append(listener)
        raise ZeroDivisionError

    with serving() as server:
        forwarded_ports = (server.forwarded_port(), ForwardedPort(_OTHER_PORT, refuse))
        for persistent in (False, True):

            def run(*, persistent: bool = persistent) -> object:
                return bench.sandbox(forwarded_ports=forwarded_ports, persistent=persistent).run(probe_command("cat"))

            require_raises(run, ZeroDivisionError)
        require_equal([listener.fileno() for listener in given], [-1, -1], "open descriptors")


@CHECKS
def invalid_ports_are_rejected(bench: Bench) -> None:
    """Duplicate, invalid or too many forwarded ports, and forwarded ports with a network, raise ``ConfigError``."""
    with serving() as server:
        too_many = tuple(server.forwarded_port(port) for port in range(1, MAX_FORWARDED_PORTS + 2))
        for forwarded_ports in (
            (server.forwarded_port(), server.forwarded_port()),
            (server.forwarded_port(0),),
            (server.forwarded_port(1 << 16),),
            too_many,
        ):
            require_raises(partial(bench.sandbox, forwarded_ports=forwarded_ports), ConfigError)
        require_raises(
            partial(bench.sandbox, forwarded_ports=(server.forwarded_port(),), network="bridge"), ConfigError
        )
        require_equal(server.listeners, [], "forwarded ports that were served")
