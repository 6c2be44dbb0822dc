"""Checks: forwarded ports, and that a sandbox which has some reaches through them who serves them, and nobody else."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from securebench.errors import ConfigError
from securebench.sandboxes.base import Mount
from securebench.sandboxes.forwarding import MAX_FORWARDED_PORTS, ForwardedPort
from securebench.testing.addresses import own_addresses, resolvers
from securebench.testing.conformance.bench import (
    PATIENCE,
    Bench,
    CheckRegistry,
    probe_command,
    read_until,
    require,
    require_equal,
    require_refused,
    workspace_path,
)
from securebench.testing.conformance.isolation import FORBIDDEN, ROOT
from securebench.testing.conformance.leavings import left

if TYPE_CHECKING:
    from collections.abc import Iterator

CHECKS = CheckRegistry()

PORT = 3128
_OTHER_PORT = 8788
_SHORT = 1.5
_UNREACHABLE = {"ENETUNREACH", "EHOSTUNREACH", "EADDRNOTAVAIL", "ECONNREFUSED"}


class Server:
    """Answers at forwarded ports: to each line what it was, after ``name``. It closes what it was given.

    ``ended`` is set when a connection has ended.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.listeners: list[socket.socket] = []
        self.ended = threading.Event()

    def forwarded_port(self, port: int = PORT) -> ForwardedPort:
        """Return a forwarded port that leads here."""
        return ForwardedPort(port, self.serve)

    def serve(self, listener: socket.socket) -> None:
        """Take a listening socket."""
        self.listeners.append(listener)
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def close(self) -> None:
        """Serve no longer."""
        for listener in self.listeners:
            if listener.fileno() >= 0:
                listener.shutdown(socket.SHUT_RDWR)
                listener.close()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:  # it was closed
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(4096):
                    connection.sendall(f"{self.name}: ".encode() + data)
            except OSError:  # it ended without a word
                pass
        self.ended.set()


@contextmanager
def serving(name: str = "outside") -> Iterator[Server]:
    """Give a server, which is closed afterwards."""
    server = Server(name)
    try:
        yield server
    finally:
        server.close()


def called(bench: Bench, *words: str, **options: Any) -> str:
    """Return what was answered to a word at the port, or what went wrong, in a fresh sandbox."""
    return bench.said("call", *(words or (str(PORT), "hello")), **options)


@CHECKS
def a_port_answers_from_the_start(bench: Bench) -> None:
    """The first thing that a process does may be to speak to a forwarded port, in both kinds of sandbox."""
    for persistent in (False, True):
        with serving() as server:
            answer = called(bench, forwarded_ports=(server.forwarded_port(),), persistent=persistent)
        require_equal(answer, "outside: hello", "the answer")


@CHECKS
def ports_lead_to_who_serves_them(bench: Bench) -> None:
    """With several forwarded ports each leads to its own server, as often as it is called."""
    with serving("one") as one, serving("two") as two:
        sandbox = bench.sandbox(
            forwarded_ports=(one.forwarded_port(), two.forwarded_port(_OTHER_PORT)), persistent=True
        )
        for port, name in ((PORT, "one"), (_OTHER_PORT, "two"), (PORT, "one")):
            said = sandbox.run(probe_command("call", str(port), "hello")).stdout
            require_equal(said, f"{name}: hello\n".encode(), f"the answer at port {port}")


@CHECKS
def each_container_has_ports_of_its_own(bench: Bench) -> None:
    """Each command of an ephemeral sandbox has its own forwarded port; all of a persistent one share theirs."""
    for persistent, expected in ((False, 2), (True, 1)):
        with serving() as server:
            sandbox = bench.sandbox(forwarded_ports=(server.forwarded_port(),), persistent=persistent)
            for _ in range(2):
                require_equal(sandbox.run(probe_command("call", str(PORT), "x")).stdout, b"outside: x\n", "the answer")
            require_equal(len(server.listeners), expected, "forwarded ports that were served")


@CHECKS
def with_a_port_there_is_still_only_loopback(bench: Bench) -> None:
    """Beside a forwarded port there is one interface, loopback, no route, and nobody else who listens (J03, J12)."""
    for persistent in (False, True):
        with serving() as server:
            found = json.loads(bench.said("network", forwarded_ports=(server.forwarded_port(),), persistent=persistent))
        expected = {"interfaces": ["lo"], "listening": [f"127.0.0.1:{PORT}"], "others": 0, "routes": 0}
        require_equal(found, expected, "the network")


@CHECKS
def with_a_port_nothing_more_is_allowed(bench: Bench) -> None:
    """Root in a sandbox with a forwarded port has no capability, and is refused all that is forbidden (A22, I18)."""
    with serving() as server:
        options: dict[str, Any] = {"forwarded_ports": (server.forwarded_port(),), "user": ROOT}
        require_equal(json.loads(bench.said("attempt", *FORBIDDEN, **options)), [], "what root could do")
        require_equal(set(bench.facts(**options)["capabilities"].values()), {0}, "capabilities")


@CHECKS
def with_a_port_the_host_cannot_be_reached(bench: Bench) -> None:
    """No server of the host can be reached, on loopback or any of its addresses, nor a gateway (J01, J08)."""
    with serving() as server, socket.create_server(("", 0)) as hosts:
        sandbox = bench.sandbox(forwarded_ports=(server.forwarded_port(),), persistent=True)
        port = str(hosts.getsockname()[1])
        for address in ("127.0.0.1", *own_addresses(), "172.17.0.1", "169.254.169.254", "192.0.2.1", "2001:db8::1"):
            outcome = sandbox.run(probe_command("connect", address, port)).stdout.decode().strip()
            require(outcome in _UNREACHABLE, f"connecting to {address}: {outcome}")


@CHECKS
def with_a_port_no_name_can_be_asked_for(bench: Bench) -> None:
    """No resolver hears a question: not an engine's, not one of the host's; and no name is known (J04)."""
    with serving() as server:
        sandbox = bench.sandbox(forwarded_ports=(server.forwarded_port(),), persistent=True)
        for address in ("127.0.0.11", *resolvers()):
            outcome = sandbox.run(probe_command("ask", address, "53")).stdout.decode().strip()
            require(outcome in _UNREACHABLE, f"asking {address}: {outcome}")
        require_equal(sandbox.run(probe_command("resolve", "example.com")).stdout, b"unknown\n", "resolving a name")


@CHECKS
def a_port_is_one_sandboxs_alone(bench: Bench) -> None:
    """Two sandboxes that forward the same port number each reach their own; one without reaches neither (A24)."""
    with serving("one") as one, serving("two") as two:
        sandboxes = [
            bench.sandbox(forwarded_ports=(server.forwarded_port(),), persistent=True) for server in (one, two)
        ]
        sandboxes.append(bench.sandbox(forwarded_ports=(two.forwarded_port(_OTHER_PORT),), persistent=True))
        said = [sandbox.run(probe_command("call", str(PORT), "hello")).stdout for sandbox in sandboxes]
    require_equal(said, [b"one: hello\n", b"two: hello\n", b"ECONNREFUSED\n"], "the answers")


@CHECKS
def what_listens_in_a_sandbox_is_not_a_neighbours(bench: Bench) -> None:
    """What a process with a forwarded port listens at cannot be reached from another sandbox, nor from the host."""
    with serving() as server:
        first, second = (bench.sandbox(forwarded_ports=(server.forwarded_port(),), persistent=True) for _ in range(2))
        process = first.open(probe_command("listen", str(_OTHER_PORT)))
        read_until(process, b"listening\n")
        outcome = second.run(probe_command("connect", "127.0.0.1", str(_OTHER_PORT))).stdout
        require_equal(outcome, b"ECONNREFUSED\n", "connecting to the neighbour's")
        require_refused(partial(socket.create_connection, ("127.0.0.1", _OTHER_PORT), 3), OSError)
        process.kill()


@CHECKS
def connections_end_with_their_sandbox(bench: Bench) -> None:
    """A time limit, a kill and closing end the connections of a sandbox: who serves sees their end."""
    for persistent in (False, True):
        for ending in ("time", "kill", "close"):
            with serving() as server:
                sandbox = bench.sandbox(forwarded_ports=(server.forwarded_port(),), persistent=persistent)
                process = sandbox.open(probe_command("linger", str(PORT), timeout=_SHORT if ending == "time" else 60))
                read_until(process, b"outside: here\n")
                require(not server.ended.is_set(), "the connection lasts while the sandbox does")
                {"time": process.wait, "kill": process.kill, "close": sandbox.close}[ending]()
                require(server.ended.wait(PATIENCE), f"the connection has not ended by {ending}")


@CHECKS
def a_port_can_be_closed_from_outside(bench: Bench) -> None:
    """Once nobody serves a forwarded port, a running sandbox is refused there, and nothing else changes."""
    with serving() as server:
        sandbox = bench.sandbox(forwarded_ports=(server.forwarded_port(),), persistent=True)
        require_equal(sandbox.run(probe_command("call", str(PORT), "x")).stdout, b"outside: x\n", "the answer")
    require_equal(
        sandbox.run(probe_command("call", str(PORT), "x")).stdout, b"ECONNREFUSED\n", "the closed forwarded port"
    )


@CHECKS
def ports_are_no_hindrance(bench: Bench) -> None:
    """Beside forwarded ports there are mounts, a writable root, and what was changed is collected, as without."""
    mounts = (Mount(bench.shared(), workspace_path(), read_only=False),)
    directory = bench.said("library")
    with serving() as server, bench.driver.image_tree(bench.image) as tree:
        options: dict[str, Any] = {"forwarded_ports": (server.forwarded_port(),), "read_only": False, "user": ROOT}
        require_equal(called(bench, mounts=mounts, **options), "outside: hello", "the answer")
        sandbox = bench.sandbox(collect=directory, **options)
        require_equal(sandbox.run(probe_command("change", directory, "add")).stdout, b"add ok\n", "the change")
        pristine = Path(str(tree.root) + directory)
        require(b"added" in left(sandbox.collected(), pristine), "what was changed is there")


@CHECKS
def who_cannot_serve_gets_no_sandbox(bench: Bench) -> None:
    """When serving a forwarded port raises, opening the sandbox raises that, and the forwarded port is closed."""
    given: list[socket.socket] = []

    def refuse(listener: socket.socket) -> None:
        given.append(listener)
        raise ZeroDivisionError

    with serving() as server:
        forwarded_ports = (server.forwarded_port(), ForwardedPort(_OTHER_PORT, refuse))
        for persistent in (False, True):

            def run(*, persistent: bool = persistent) -> object:
                return bench.sandbox(forwarded_ports=forwarded_ports, persistent=persistent).run(probe_command("cat"))

            require_refused(run, ZeroDivisionError)
        require_equal([listener.fileno() for listener in given], [-1, -1], "descriptors that are left")


@CHECKS
def ports_that_cannot_be_are_refused(bench: Bench) -> None:
    """Two forwarded ports at one port, one at no port, too many, and one beside a network raise ``ConfigError``."""
    with serving() as server:
        too_many = tuple(server.forwarded_port(port) for port in range(1, MAX_FORWARDED_PORTS + 2))
        for forwarded_ports in (
            (server.forwarded_port(), server.forwarded_port()),
            (server.forwarded_port(0),),
            (server.forwarded_port(1 << 16),),
            too_many,
        ):
            require_refused(partial(bench.sandbox, forwarded_ports=forwarded_ports), ConfigError)
        require_refused(
            partial(bench.sandbox, forwarded_ports=(server.forwarded_port(),), network="bridge"), ConfigError
        )
        require_equal(server.listeners, [], "forwarded ports that were served")
