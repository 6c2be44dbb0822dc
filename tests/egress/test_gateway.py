"""The gateway: its sessions, its process, and what happens when either of them ends or fails."""

from __future__ import annotations

import gzip
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trustme

from securebench.egress import connection as connection_module
from securebench.egress.gateway import PROXY_PORT, RELAY_PORT, Gateway
from securebench.egress.model import EgressPlan, ProbeReport, Provider, RelayPlan
from securebench.errors import EgressError
from securebench.testing.egress_world import (
    HOST,
    SECONDS,
    LoopbackServer,
    ask,
    connected,
    port_of,
    read_all,
    secured,
    world,
)
from securebench.trials import TrialId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from securebench.resources import JsonValue
    from securebench.testing.egress_world import EgressWorld

PLAN = EgressPlan(domains=(HOST,))
CANARY = "sk-canary-4e1f"
RELAY = RelayPlan(
    provider=Provider.OPENAI,
    base_url="https://api.example.test/v1",
    key=CANARY,
    model="m",
    requests=1,
    tokens=1,
    bytes=1,
)


@pytest.fixture
def outside() -> Iterator[EgressWorld]:
    """Yield a gateway and the servers that the name ``HOST`` leads to."""
    with world(HOST) as made:
        yield made


def process_of(gateway: Gateway) -> int:
    """Return the id of a gateway's process."""
    assert gateway._connection
    assert gateway._connection._child
    return gateway._connection._child.pid


def is_there(process: int) -> bool:
    """Return whether a process exists and has not exited. A zombie has exited."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def await_end(process: int) -> None:
    """Wait until a process has exited."""
    deadline = time.monotonic() + SECONDS
    while is_there(process):
        assert time.monotonic() < deadline, f"process {process} still lives"
        time.sleep(0.01)


def test_a_session_reports_what_it_was_used_for(outside: EgressWorld) -> None:
    """A session's report counts decisions by reason and by host, and all bytes. Later closes return it again."""
    with outside.gateway.open(TrialId("task"), PLAN) as session:
        port = port_of(session)
        with secured(port, outside.trust) as connection:
            connection.sendall(b"ping")
            connection.recv(4)
        ask(port, b"CONNECT evil.test:443 HTTP/1.1\r\nHost: x\r\n\r\n")
        outside.decisions(3)
        report = session.close()
        assert session.close() is report
    assert report.decisions == {"allowed": 1, "domain_not_allowed": 1}
    assert report.hosts == {HOST: 1, "evil.test": 1}
    assert report.bytes > 1000
    assert report.relay is None


def test_a_plan_makes_ports_and_variables() -> None:
    """A plan with domains and a relay gets ports for both, proxy variables and a URL. An empty plan gets none."""
    gateway = Gateway(lambda _: None)
    with gateway.open(TrialId("both"), EgressPlan(domains=(HOST,), relay=RELAY)) as both:
        assert [forwarded_port.port for forwarded_port in both.forwarded_ports] == [PROXY_PORT, RELAY_PORT]
        assert both.environment["HTTPS_PROXY"] == both.environment["http_proxy"] == "http://127.0.0.1:3128"
        assert both.environment["NO_PROXY"] == "127.0.0.1,localhost"
        assert both.relay_url == "http://127.0.0.1:8788"
    with gateway.open(TrialId("nothing"), EgressPlan()) as nothing:
        assert (nothing.forwarded_ports, nothing.environment, nothing.relay_url) == ((), {}, "")
    gateway.close()


def test_ports_are_served_as_often_as_there_are_containers(outside: EgressWorld) -> None:
    """A forwarded port can be served several times, because each command of a sandbox may have its own network."""
    with outside.gateway.open(TrialId("task"), PLAN) as session:
        for _ in range(3):
            with secured(port_of(session), outside.trust) as connection:
                connection.sendall(b"ping")
                assert connection.recv(4) == b"ping"


def test_a_port_owns_the_listener_that_it_is_given(outside: EgressWorld) -> None:
    """Serving a listener closes it in this process. The end of the session closes it in the gateway's process."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    with outside.gateway.open(TrialId("task"), PLAN) as session:
        session.forwarded_ports[0].serve(listener)
        assert listener.fileno() == -1
        socket.create_connection(("127.0.0.1", port), timeout=SECONDS).close()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), timeout=SECONDS)


def test_the_end_of_a_session_ends_its_connections(outside: EgressWorld) -> None:
    """Closing a session ends its tunnels and logs their end. Tunnels of other sessions stay open."""
    with outside.gateway.open(TrialId("other"), PLAN) as other:
        session = outside.gateway.open(TrialId("task"), PLAN)
        with (
            secured(port_of(other), outside.trust) as unharmed,
            secured(port_of(session), outside.trust) as connection,
            connected(port_of(session)),
        ):
            session.close()
            assert read_all(connection) == b""
            unharmed.sendall(b"ping")
            assert unharmed.recv(4) == b"ping"
    assert outside.decisions(2)[-1] == ("closed", "session_closed")


def test_a_port_of_a_session_that_has_ended_is_shut(outside: EgressWorld) -> None:
    """A client that uses a forwarded port after the session has ended gets no data, and does not hang."""
    session = outside.gateway.open(TrialId("task"), PLAN)
    session.close()
    with suppress(OSError):
        assert ask(port_of(session), b"GET / HTTP/1.1\r\n\r\n") == b""


def test_forty_sessions_at_once_are_served(outside: EgressWorld) -> None:
    """Forty tasks use one gateway at the same time, and each gets its own report."""
    started = threading.Barrier(40)

    def work(number: int) -> int:
        with outside.gateway.open(TrialId(f"task-{number}"), PLAN) as session:
            with secured(port_of(session), outside.trust) as connection:
                started.wait(60)
                connection.sendall(bytes(20_000))
                received = 0
                while received < 20_000:
                    received += len(connection.recv(65536))
            return session.close().decisions["allowed"]

    with ThreadPoolExecutor(40) as pool:
        assert list(pool.map(work, range(40))) == [1] * 40


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may look at a process that cannot be dumped")
def test_no_descriptor_is_left_after_many_sessions(outside: EgressWorld) -> None:
    """Closed sessions, tunnels and gateways leave no open descriptor in this process or in a gateway's process."""

    def use() -> None:
        with outside.gateway.open(TrialId("task"), PLAN) as session:
            port = port_of(session)
            with secured(port, outside.trust) as connection:
                connection.sendall(b"ping")
                connection.recv(4)
            ask(port, b"CONNECT evil.test:443 HTTP/1.1\r\nHost: x\r\n\r\n")
        gateway = Gateway(lambda _: None)
        gateway.open(TrialId("task"), PLAN).close()
        gateway.close()

    use()
    process = process_of(outside.gateway)

    def descriptors() -> list[int]:
        return [sum(1 for _ in Path(place).iterdir()) for place in (f"/proc/{process}/fd", "/proc/self/fd")]

    threads = threading.active_count()
    deadline = time.monotonic() + SECONDS
    before = descriptors()
    for _ in range(5):
        use()
    while (
        any(now > then for now, then in zip(descriptors(), before, strict=True)) or threading.active_count() > threads
    ):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_process_has_little_to_lose() -> None:
    """The gateway's process cannot gain privileges or be dumped, and its command line does not contain the key.

    If root starts it, it runs as nobody, without groups, capabilities and environment variables.
    """
    gateway = Gateway(lambda _: None)
    with gateway.open(TrialId("task"), EgressPlan(relay=RELAY)):
        place = Path(f"/proc/{process_of(gateway)}")
        status = dict(line.split(":\t", 1) for line in (place / "status").read_text().splitlines() if ":\t" in line)
        assert CANARY.encode() not in (place / "cmdline").read_bytes()
        assert status["NoNewPrivs"] == "1"
        if os.geteuid() == 0:  # other users can neither read ``environ`` nor change the user of a process
            assert (place / "environ").read_bytes() == b""
            assert set(status["Uid"].split() + status["Gid"].split()) == {"65534"}
            assert status["Groups"].split() == []
            assert int(status["CapEff"], 16) == 0
        limits = (place / "limits").read_text()
        assert limits.partition("Max core file size")[2].split()[:2] == ["0", "0"]
        # The /proc files of a process that cannot be dumped belong to root, whichever user runs the process.
        assert (place / "environ").stat().st_uid == 0
    gateway.close()


def _answers_compressed(encoding: str, answer: bytes) -> Callable[[socket.socket], None]:
    """Return a handler that answers one request with ``answer``, which is compressed with ``encoding``."""

    def handle(connection: socket.socket) -> None:
        received = b""
        while not received.endswith(b"}"):  # the end of the body
            received += connection.recv(65536)
        head = f"Content-Type: application/json\r\nContent-Encoding: {encoding}\r\nContent-Length: {len(answer)}"
        connection.sendall(f"HTTP/1.1 200 OK\r\n{head}\r\n\r\n".encode() + answer)
        connection.recv(1)

    return handle


def _forwards(connection: socket.socket) -> None:
    """Serve one tunnel, as a proxy does."""

    def copy(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += connection.recv(1)
    host, _, port = head.split()[1].decode().rpartition(":")
    with socket.create_connection((host, int(port))) as onward:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        back = threading.Thread(target=copy, args=(onward, connection))
        back.start()
        copy(connection, onward)
        back.join()


def test_a_provider_behind_a_proxy_that_compresses() -> None:
    """A gateway can use TLS inside a proxy's tunnel and decode each encoding, although it cannot read files."""
    answer = b'{"status":"completed","usage":{"input_tokens":7,"output_tokens":3}}'
    authority, tls = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(tls)
    encoders = {"gzip": gzip.compress, "deflate": zlib.compress, "br": pytest.importorskip("brotli").compress}
    proxy, gateway = LoopbackServer(_forwards), Gateway(lambda _line: None)
    try:
        for encoding, compress in encoders.items():
            provider = LoopbackServer(_answers_compressed(encoding, compress(answer)), tls)
            plan = replace(
                RELAY,
                base_url=f"https://localhost:{provider.port}/v1",
                ca_bundle=authority.cert_pem.bytes().decode(),
                proxy=f"http://127.0.0.1:{proxy.port}",
            )
            assert gateway.probe(None, plan, "m") == ProbeReport(status=200, input_tokens=7, output_tokens=3)
            provider.close()
        assert proxy.connections == 3
    finally:
        gateway.close()
        proxy.close()


def test_a_key_is_not_in_what_a_plan_or_an_error_shows() -> None:
    """Neither the ``repr`` of a plan nor the error about an invalid plan contains the key."""
    gateway = Gateway(lambda _: None)
    wrong = RelayPlan(
        provider=Provider.OPENAI, base_url="gopher://x", key=CANARY, model="m", requests=1, tokens=1, bytes=1
    )
    with pytest.raises(EgressError) as caught:
        gateway.open(TrialId("task"), EgressPlan(relay=wrong))
    assert CANARY not in f"{caught.value!r} {caught.value} {wrong!r}"
    gateway.close()


def test_a_plan_that_cannot_be_served_harms_no_other(outside: EgressWorld) -> None:
    """A session with an invalid domain cannot be opened, and the next session still can."""
    with pytest.raises(EgressError, match="cannot open a session for this task"):
        outside.gateway.open(TrialId("bad"), EgressPlan(domains=("127.0.0.1",)))
    outside.gateway.open(TrialId("good"), PLAN).close()


def test_a_plan_that_is_too_large_is_refused(outside: EgressWorld) -> None:
    """A plan with more domains than fit into a frame is refused, and the next session can be opened."""
    with pytest.raises(EgressError, match="too large"):
        outside.gateway.open(TrialId("bad"), EgressPlan(domains=tuple(f"{n}.{'a' * 60}.test" for n in range(3000))))
    outside.gateway.open(TrialId("good"), PLAN).close()


def test_the_death_of_the_process_is_noticed_at_once() -> None:
    """If the gateway is killed during a transfer, callbacks run soon, and closing each open session raises an error.

    A callback that is registered after its session was closed is not called.
    """
    notified = threading.Event()

    def handle(connection: socket.socket) -> None:
        while True:
            connection.sendall(bytes(65536))

    with world(HOST, tls=handle) as outside:
        other = outside.gateway.open(TrialId("other"), PLAN)
        session = outside.gateway.open(TrialId("task"), PLAN)
        session.on_death(notified.set)
        with secured(port_of(session), outside.trust) as connection:
            connection.recv(65536)
            began = time.monotonic()
            os.kill(process_of(outside.gateway), signal.SIGKILL)
            assert notified.wait(SECONDS)
            assert time.monotonic() - began < 20
            read_all(connection)
        for ended in (session, session, other):
            with pytest.raises(EgressError, match="killed by signal 9") as caught:
                ended.close()
            assert caught.value.code == "egress-failed"
        late = threading.Event()
        other.on_death(late.set)
        assert not late.is_set(), "it is closed"


def test_who_asks_late_hears_of_a_death_at_once(outside: EgressWorld) -> None:
    """A callback that is registered when the gateway of an open session has already died is called at once."""
    session = outside.gateway.open(TrialId("task"), PLAN)
    os.kill(process_of(outside.gateway), signal.SIGKILL)
    await_end(process_of(outside.gateway))
    assert outside.gateway._connection
    outside.gateway._connection._dead.wait(SECONDS)
    notified = threading.Event()
    session.on_death(notified.set)
    assert notified.is_set()
    port_of(session)  # raises nothing
    with pytest.raises(EgressError):
        session.close()


def test_after_a_death_the_next_session_has_a_new_process(outside: EgressWorld) -> None:
    """A session that is opened after the gateway's process has died is served by a new process."""
    with suppress(EgressError), outside.gateway.open(TrialId("task"), PLAN):
        os.kill(process_of(outside.gateway), signal.SIGKILL)
        await_end(process_of(outside.gateway))
        time.sleep(0.1)
    with outside.gateway.open(TrialId("next"), PLAN) as session, secured(port_of(session), outside.trust) as connection:
        connection.sendall(b"ping")
        assert connection.recv(4) == b"ping"


def test_a_process_that_hangs_is_killed(outside: EgressWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway that is stopped and does not answer in time is killed, and closing its session raises an error."""
    monkeypatch.setattr(connection_module, "_ANSWER_SECONDS", 0.5)
    session = outside.gateway.open(TrialId("task"), PLAN)
    process = process_of(outside.gateway)
    os.kill(process, signal.SIGSTOP)
    with pytest.raises(EgressError, match="did not answer"):
        session.close()
    await_end(process)


def test_a_gateway_that_fails_says_so(outside: EgressWorld) -> None:
    """An error of the gateway when it closes a session is reported as such, and not as an invalid report."""
    session = outside.gateway.open(TrialId("task"), PLAN)
    connection, number = session._connection, session._number
    connection._ask(connection._sessions[number], {"do": "close", "session": number}, SECONDS)
    with pytest.raises(EgressError, match="failed to close the session of this task: KeyError"):
        session.close()
    outside.gateway.open(TrialId("other"), PLAN).close()


def test_a_closed_gateway_serves_nobody(outside: EgressWorld) -> None:
    """Closing a gateway ends its process even if sessions are open, and can be repeated. Later use is an error."""
    session = outside.gateway.open(TrialId("task"), PLAN)
    process = process_of(outside.gateway)
    outside.gateway.close()
    outside.gateway.close()
    assert not is_there(process)
    for use in (session.close, lambda: outside.gateway.open(TrialId("task"), PLAN)):
        with pytest.raises(EgressError):
            use()


def test_an_error_on_its_way_is_not_replaced(outside: EgressWorld) -> None:
    """An exception inside a session's ``with`` block is not replaced by the error that the gateway died."""

    def fail() -> None:
        with outside.gateway.open(TrialId("task"), PLAN):
            os.kill(process_of(outside.gateway), signal.SIGKILL)
            raise KeyError

    with pytest.raises(KeyError):
        fail()


def test_a_log_that_cannot_be_written_is_an_error_of_its_session(outside: EgressWorld) -> None:
    """Closing a session whose log lines could not be written raises an error, because its evidence is missing."""

    def log(line: Mapping[str, JsonValue]) -> None:
        raise OSError(28, "No space left on device")

    gateway = Gateway(log)
    session = gateway.open(TrialId("task"), PLAN)
    ask(port_of(session), b"CONNECT evil.test:443 HTTP/1.1\r\nHost: x\r\n\r\n")
    with pytest.raises(EgressError, match="No space left"):
        session.close()
    gateway.close()


def test_a_process_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the gateway's process cannot start, the error contains what the process wrote to stderr."""
    monkeypatch.setattr("securebench.ipc.child._BOOT", "raise SystemExit('no room for me')")
    with pytest.raises(EgressError, match="no room for me"):
        Gateway(lambda _: None).open(TrialId("task"), PLAN)


def test_a_python_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the Python interpreter does not exist, opening a session raises :class:`EgressError` with the reason."""
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    with pytest.raises(EgressError, match="No such file"):
        Gateway(lambda _: None).open(TrialId("task"), PLAN)


RUN = f"""
import subprocess, sys, threading, time
sys.path[:0] = {sys.path!r}
from securebench.egress.gateway import Gateway
from securebench.egress.model import EgressPlan
from securebench.trials import TrialId

def use():
    gateway.open(TrialId("task"), EgressPlan(domains=("a.test",))).close()

gateway = Gateway(print)
starter = threading.Thread(target=use)
starter.start()
starter.join()
first = gateway._connection._child.pid
time.sleep(0.3)
use()
held = gateway._connection._child.channel.fileno()
sleep = ["sleep", "60"]
holder = subprocess.Popen(sleep, pass_fds=[held], stdout=subprocess.DEVNULL) if sys.argv[1] == "held" else None
print(gateway._connection._child.pid, first, holder.pid if holder else 0, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("held", ["held", "alone"])
def test_nothing_outlives_a_run_that_is_killed(held: str) -> None:
    """When a run is killed, its gateway exits, even if another process still has the channel open.

    The run first uses its gateway in a thread that has ended by then. The gateway outlives this thread.
    """
    with subprocess.Popen([sys.executable, "-c", RUN, held], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout
        process, first, holder = map(int, run.stdout.readline().split())
        try:
            assert process == first
            assert is_there(process)
            run.kill()
            await_end(process)
        finally:
            run.kill()
            if holder:
                os.kill(holder, signal.SIGKILL)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has groups to lose")
def test_root_s_other_groups_are_left_behind() -> None:
    """The gateway of a run that root started does not keep the run's supplementary groups."""
    with subprocess.Popen(
        [sys.executable, "-c", RUN, "alone"], stdout=subprocess.PIPE, text=True, extra_groups=[12345]
    ) as run:
        assert run.stdout
        process = int(run.stdout.readline().split()[0])
        groups = [Path(f"/proc/{number}/status").read_text().partition("Groups:")[2] for number in (run.pid, process)]
        run.kill()
    assert [line.split("\n")[0].split() for line in groups] == [["12345"], []]
