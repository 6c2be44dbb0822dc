"""Connecting to a Docker Engine, and the error types for its failures (L08)."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import docker.errors
import pytest
import requests

from engine_doubles import VERSION, FakeEngine, endpoint_of
from securebench.engine import client as engine_module
from securebench.engine.client import Engine, connect
from securebench.errors import DiskFullError, EngineError, ImageError, InfrastructureError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeEngine]:
    """Yield a fake engine whose responses the test defines."""
    server = FakeEngine(tmp_path / "engine.sock")
    yield server
    server.close()


@pytest.fixture
def connected(fake: FakeEngine) -> Iterator[Engine]:
    """Yield a connection to the fake engine."""
    engine = connect([fake.endpoint])
    yield engine
    engine.close()


@pytest.mark.parametrize(
    ("newest", "oldest", "spoken"),
    [("1.41", "1.12", "1.41"), ("1.47", "1.24", "1.41"), ("1.52", "1.44", "1.44"), ("1.43", None, "1.41")],
)
def test_the_api_version_is_negotiated(fake: FakeEngine, newest: str, oldest: str | None, spoken: str) -> None:
    """Requests use the oldest API version from 1.41 on that the engine supports."""
    fake.answer("GET /version", {**VERSION, "ApiVersion": newest, "MinAPIVersion": oldest})
    fake.answer(f"GET /v{spoken}/info", {"Driver": "here"})
    engine = connect([fake.endpoint])
    assert engine.api == spoken
    assert engine.client.info() == {"Driver": "here"}
    engine.close()


def test_an_old_engine_is_refused(fake: FakeEngine) -> None:
    """An engine older than 20.10 is refused. The error names its version and the required one (I03)."""
    fake.answer("GET /version", {"Version": "19.03.1", "ApiVersion": "1.40"})
    with pytest.raises(EngineError, match=r"19\.03\.1") as raised:
        connect([fake.endpoint])
    assert raised.value.code == "engine-too-old"
    assert "20.10" in raised.value.hint


def test_no_engine_is_told_with_what_was_tried(tmp_path: Path) -> None:
    """If no engine responds, the error lists every endpoint that was tried, and the hint tells how to install one."""
    places = [endpoint_of(tmp_path / "one.sock"), endpoint_of(tmp_path / "two.sock")]
    with pytest.raises(EngineError) as raised:
        connect(places)
    assert raised.value.code == "engine-unavailable"
    assert all(place.url in raised.value.message for place in places)
    assert "docker.io" in raised.value.hint


def test_the_second_place_is_tried(fake: FakeEngine, tmp_path: Path) -> None:
    """The first endpoint at which an engine responds is used."""
    engine = connect([endpoint_of(tmp_path / "nothing.sock"), fake.endpoint])
    assert engine.endpoint == fake.endpoint
    engine.close()


def test_a_forbidden_socket_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket without permission for this user has a different error code from a missing socket."""

    def forbidden(_self: object) -> socket.socket:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("securebench.engine.endpoint.EngineEndpoint.dial", forbidden)
    with pytest.raises(EngineError) as raised:
        connect([endpoint_of(tmp_path / "engine.sock")])
    assert raised.value.code == "engine-permission"
    assert "docker" in raised.value.hint


def test_something_that_is_no_engine_is_told(tmp_path: Path) -> None:
    """A socket whose server does not use HTTP causes an engine error."""
    path = tmp_path / "other.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        listener.settimeout(5)
        import threading

        def slam() -> None:
            for _ in range(2):
                connection = listener.accept()[0]
                connection.close()

        thread = threading.Thread(target=slam)
        thread.start()
        with pytest.raises(EngineError):
            connect([endpoint_of(path)])
        thread.join()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (requests.ConnectionError("refused"), EngineError),
        (requests.ReadTimeout("slow"), EngineError),
        (ConnectionResetError("gone"), EngineError),
        (docker.errors.DockerException("odd"), EngineError),
    ],
)
def test_connection_trouble_is_an_engine_error(connected: Engine, error: Exception, kind: type[Exception]) -> None:
    """Every kind of connection failure becomes an engine error, with the failure as its cause."""
    with pytest.raises(kind, match="could not do it") as raised, connected.doing("do it"):
        raise error
    assert raised.value.__cause__ is error


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (500, "write /var/lib/docker/x: no space left on device", DiskFullError),
        (500, "mkdir: No space left on device", DiskFullError),
        (404, "no such container: x", ImageError),
        (404, "anything", ImageError),
        (409, "conflict", InfrastructureError),
        (400, "bad parameter", InfrastructureError),
        (500, "something else", InfrastructureError),
    ],
)
def test_refusals_have_types(
    fake: FakeEngine, connected: Engine, status: int, message: str, kind: type[InfrastructureError]
) -> None:
    """The error type depends on the HTTP status. A full disk is recognized by the engine's text instead.

    The message of the error contains this text.
    """
    fake.refuse("GET .*/info", status, message)
    with pytest.raises(kind) as raised, connected.doing("describe itself", missing=ImageError, hint="a hint"):
        connected.client.info()
    assert type(raised.value) is kind
    assert message in raised.value.message
    assert kind is not ImageError or raised.value.hint == "a hint"


def test_other_errors_pass(connected: Engine) -> None:
    """An exception that no request to the engine caused is raised unchanged."""
    with pytest.raises(ZeroDivisionError), connected.doing("divide"):
        raise ZeroDivisionError


def test_a_call_does_not_wait_for_ever(fake: FakeEngine, connected: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that accepts a request and never responds causes an engine error after a timeout."""
    connected.client.timeout = 0.2  # type: ignore[assignment]  # the SDK takes fractions
    released = fake.hang("GET .*/info")
    with pytest.raises(EngineError, match="does not respond"), connected.doing("describe itself"):
        connected.client.info()
    monkeypatch.setattr(engine_module, "CALL_TIMEOUT", 0.2)
    fake.hang("POST .*/attach")
    with pytest.raises(EngineError, match="does not respond"):
        connected.hijack("/containers/x/attach?stream=1")
    released.set()


def test_a_proxy_of_the_environment_is_not_used(fake: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests to the engine do not use a web proxy that is set in the environment."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    engine = connect([fake.endpoint])
    fake.answer("GET .*/info", {"Driver": "here"})
    assert engine.client.info() == {"Driver": "here"}
    assert engine.client.trust_env is False
    engine.close()


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (404, "no such container", InfrastructureError),
        (500, "no space left on device", DiskFullError),
    ],
)
def test_a_refused_stream_is_told(
    fake: FakeEngine, connected: Engine, status: int, message: str, kind: type[Exception]
) -> None:
    """If the engine refuses to open a stream, the error contains the engine's text."""
    fake.refuse("POST .*/attach", status, message)
    with pytest.raises(kind, match=message):
        connected.hijack("/containers/x/attach?stream=1")


def stream_server(path: Path, *pieces: bytes) -> socket.socket:
    """Return a listener that responds to its first connection with ``pieces``, each sent separately."""
    import threading

    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def serve() -> None:
        connection = listener.accept()[0]
        connection.recv(65536)
        for piece in pieces:
            connection.sendall(piece)
        connection.close()

    threading.Thread(target=serve, daemon=True).start()
    return listener


@pytest.mark.parametrize(
    "pieces",
    [
        (b"HTTP/1.1 101 UPGRADED\r\nUpgrade: tcp\r\n\r\nfirst bytes",),
        (b"HTTP/1.1 101 UPGRADED\r\nUpgrade: tcp\r\n\r", b"\nfirst bytes"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: x\r\n", b"\r\nfirst bytes"),
    ],
    ids=["one packet", "cut in the header", "old status"],
)
def test_no_byte_after_the_header_is_lost(connected: Engine, tmp_path: Path, pieces: tuple[bytes, ...]) -> None:
    """The first bytes of a stream are received, even if they arrive in one packet with the header."""
    path = tmp_path / "stream.sock"
    with stream_server(path, *pieces):
        engine = Engine(connected.client, endpoint_of(path), connected.version, connected.api)
        stream = engine.hijack("/exec/x/start", {"Detach": False})
        stream.settimeout(5)
        received = b""
        while data := stream.recv(100):
            received += data
        stream.close()
    assert received == b"first bytes"


def test_a_stream_that_ends_before_an_answer_is_told(connected: Engine, tmp_path: Path) -> None:
    """If the connection ends within the response header, the error states that the engine does not respond."""
    path = tmp_path / "stream.sock"
    with stream_server(path, b"HTTP/1.1 101 UPG"):
        engine = Engine(connected.client, endpoint_of(path), connected.version, connected.api)
        with pytest.raises(EngineError, match="does not respond"):
            engine.hijack("/exec/x/start")


@pytest.mark.engine
def test_the_engine_of_this_machine_answers() -> None:
    """The engine of this machine is found, and API version 1.41 or later is negotiated."""
    engine = connect()
    assert engine.version
    assert tuple(map(int, engine.api.split("."))) >= (1, 41)
    engine.close()
