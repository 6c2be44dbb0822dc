"""The server of the scripted provider: what it records, its answers that are not in a script, and how it ends."""

from __future__ import annotations

import gzip
import importlib.util
import socket
import ssl
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
import trustme

from provider_client import APIS, KEY, PATHS, ask, commanded, request_of, text_of
from securebench.testing.provider import (
    Hang,
    ModelConversation,
    Say,
    Script,
    ScriptedProvider,
    Shell,
    Slow,
    Tls,
    answering,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCRIPT = (Shell("true"), Say("Done."))


@pytest.fixture(scope="module", name="provider")
def _provider() -> Iterator[ScriptedProvider]:
    """Yield a provider that several tests share."""
    with ScriptedProvider(SCRIPT) as provider:
        yield provider


@pytest.mark.parametrize("api", APIS)
def test_requests_are_kept(api: str) -> None:
    """Requests are recorded in order, with method, path, headers, the client's key, body and conversation."""
    with ScriptedProvider(SCRIPT) as provider:
        ask(provider.url, api, b"", method="HEAD", path="/")
        ask(provider.url, api, request_of(api, "This."), headers={"X-Own": "yes"})
        first, second = provider.requests
    assert (first.method, first.path, first.body, first.conversation) == ("HEAD", "/", None, None)
    assert (second.method, second.path, second.headers["x-own"]) == ("POST", PATHS[api], "yes")
    assert second.body == request_of(api, "This.")
    assert second.conversation is not None
    assert second.conversation.prompt == "This."
    assert provider.keys_seen == {KEY}


@pytest.mark.parametrize("bound", ["MAX_REQUESTS", "MAX_REQUEST_BYTES"])
def test_only_so_much_is_kept(monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    """The number of recorded requests and their bytes are limited. Beyond a limit, the oldest requests are dropped."""
    sizes = {"MAX_REQUESTS": 3, "MAX_REQUEST_BYTES": 3 * len(b'{"model": "0"}')}
    monkeypatch.setattr(answering, bound, sizes[bound])
    with ScriptedProvider(SCRIPT) as provider:
        for number in range(5):
            ask(provider.url, "openai", {"model": str(number)})
        assert [request.body for request in provider.requests] == [{"model": str(number)} for number in (2, 3, 4)]


@pytest.mark.parametrize("api", APIS)
def test_models_are_listed(provider: ScriptedProvider, api: str) -> None:
    """Each API lists the scripted model."""
    listed = ask(provider.url, api, b"", method="GET", path="/v1/models").value
    names = (
        [model["name"] for model in listed["models"]] if api == "gemini" else [model["id"] for model in listed["data"]]
    )
    assert [name.removeprefix("models/") for name in names] == ["scripted-model"]


def test_tokens_are_counted(provider: ScriptedProvider) -> None:
    """A client can get the number of tokens of its request."""
    path = "/v1/messages/count_tokens?beta=true"
    answer = ask(provider.url, "anthropic", request_of("anthropic"), path=path)
    assert answer.value == {"input_tokens": 1200}


def test_a_websocket_is_refused_as_clients_understand_it(provider: ScriptedProvider) -> None:
    """A WebSocket is refused with status 426, after which clients use HTTP at once."""
    upgrade = {"Upgrade": "websocket", "Connection": "Upgrade"}
    assert ask(provider.url, "openai", b"", method="GET", headers=upgrade).status == 426


def test_what_lies_beside_answers_is_open(provider: ScriptedProvider) -> None:
    """A request for an account's files succeeds, and an unknown path has status 404.

    Tests of the relay thus notice if it lets a request for files through.
    """
    assert ask(provider.url, "openai", b"", method="GET", path="/v1/files").status == 200
    assert ask(provider.url, "openai", b"", method="GET", path="/v1/elsewhere").status == 404


@pytest.mark.parametrize("api", APIS)
def test_a_body_may_be_compressed(provider: ScriptedProvider, api: str) -> None:
    """A gzip body is decompressed."""
    packed = gzip.compress(b'{"model": "packed"}')
    ask(provider.url, api, packed, headers={"Content-Encoding": "gzip"})
    assert provider.requests[-1].body == {"model": "packed"}


def test_a_body_may_come_in_chunks(provider: ScriptedProvider) -> None:
    """The chunks of a body are joined."""
    connection = socket.create_connection(("127.0.0.1", urlsplit(provider.url).port or 0), 10)
    with connection:
        head = b"POST /v1/responses HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        connection.sendall(head + b'9\r\n{"model":\r\n6;x=y\r\n "cut"\r\n1\r\n}\r\n0\r\nA: trailer\r\n\r\n')
        assert connection.makefile("rb").read().startswith(b"HTTP/1.1 200")
    assert provider.requests[-1].body == {"model": "cut"}


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({"Content-Encoding": "gzip"}, b"not gzip", 400),
        ({"Content-Encoding": "br"}, b"x", 415),
        ({"Content-Length": "many"}, b"", 400),
        ({"Content-Length": "-1"}, b"", 413),
        ({"Content-Length": str(1 << 40)}, b"", 413),
        ({"Content-Encoding": "gzip"}, gzip.compress(bytes(65 << 20)), 413),
    ],
)
def test_a_body_that_cannot_be_read_is_refused(
    provider: ScriptedProvider, headers: dict[str, str], body: bytes, status: int
) -> None:
    """A body is refused if its compression is invalid or unknown, or its size is invalid or too large."""
    assert ask(provider.url, "openai", body, headers=headers).status == status


@pytest.mark.skipif(importlib.util.find_spec("zstandard") is not None, reason="the package is there")
def test_zstd_is_read_only_with_its_package(provider: ScriptedProvider) -> None:
    """Without the package ``zstandard``, a zstd body is refused with status 415."""
    assert ask(provider.url, "openai", b"x", headers={"Content-Encoding": "zstd"}).status == 415


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"[" * 100_000, b'"x"'])
def test_what_is_no_object_is_no_conversation(provider: ScriptedProvider, body: bytes) -> None:
    """A request whose body is not a JSON object gets status 404 and is recorded without a body."""
    assert ask(provider.url, "openai", body).status == 404
    assert provider.requests[-1].body is None


def test_forty_conversations_go_on_at_once() -> None:
    """Forty conversations with one server at the same time each follow their own script to its end."""

    def book(conversation: ModelConversation) -> Script:
        return (Shell(f"echo {conversation.prompt}"), Slow(0.01), Say(f"{conversation.text} is done."))

    def converse(number: int) -> list[str | None]:
        api = APIS[number % 2]
        first = ask(provider.url, api, request_of(api, f"task-{number}"))
        last = ask(provider.url, api, request_of(api, f"task-{number}", [f"result-{number}"]))
        return [commanded(api, first), text_of(api, last)]

    with ScriptedProvider(book) as provider, ThreadPoolExecutor(40) as pool:
        ends = list(pool.map(converse, range(40)))
        assert len(provider.requests) == 80
    assert ends == [[f"echo task-{number}", f"task-{number}\nresult-{number} is done."] for number in range(40)]


def test_it_can_speak_tls(tmp_path: Path) -> None:
    """The provider serves TLS. A client rejects its certificate unless it knows the private authority."""
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_and_cert_chain_pem.write_to_path(tmp_path / "both.pem")
    context = ssl.create_default_context()
    with ScriptedProvider(SCRIPT, tls=Tls(tmp_path / "both.pem", tmp_path / "both.pem")) as provider:
        assert provider.url.startswith("https://")
        with pytest.raises(ssl.SSLCertVerificationError):
            ask(provider.url, "openai", request_of("openai"), context=context)
        authority.configure_trust(context)
        answer = ask(provider.url, "openai", request_of("openai"), context=context)
    assert commanded("openai", answer) == "true"


@pytest.mark.parametrize("fault", [Hang(3600), Slow(3600)])
def test_it_ends_while_a_client_waits(fault: Hang | Slow) -> None:
    """Closing ends connections without waiting for a hang or pause. The port is then closed and no thread is left."""
    threads = threading.active_count()
    with ScriptedProvider(SCRIPT, fault=fault) as provider, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(ask, provider.url, "openai", request_of("openai"))
        while not provider.requests:
            time.sleep(0.01)
        started = time.monotonic()
        provider.close()
        with pytest.raises(Exception, match=r"closed|IncompleteRead"):
            waiting.result(20)
    assert time.monotonic() - started < 20
    assert threading.active_count() == threads
    with pytest.raises(ConnectionRefusedError):
        ask(provider.url, "openai", request_of("openai"))


def test_a_fault_of_its_own_is_not_kept_quiet() -> None:
    """If a script book raises, the connection is closed, and the error is raised when the provider is closed."""

    def book(conversation: ModelConversation) -> Script:
        raise LookupError(conversation.prompt)

    provider = ScriptedProvider(book)
    with pytest.raises(LookupError, match="no such task"), provider, pytest.raises(OSError, match="closed"):
        ask(provider.url, "openai", request_of("openai", "no such task"))
