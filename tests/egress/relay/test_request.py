"""The checks and limits with which a relay reads an agent's requests."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bounds import processor_seconds
from relay_setup import BODIES, CLAUDE, KEY, answer_of, relayed, send
from securebench.egress.model import Provider, Trouble
from securebench.egress.relay import request as relay_request
from securebench.egress.relay.refusals import RefusedError, RelayRefusal
from securebench.egress.relay.request import MAX_BODY_BYTES, MAX_VALUES, decode, encode

GOOD_BODY = json.dumps(BODIES[Provider.OPENAI]).encode()
GOOD_HEAD = b"POST /responses HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
GOOD_LENGTH = b"Content-Length: %d\r\n\r\n" % len(GOOD_BODY)


@pytest.mark.parametrize(
    "target",
    [
        "/",
        "/v1",
        "/v1/files",
        "/v1/models",
        "/v1/chat/completions",
        "/v1/messages/batches",
        "/v1/responses/resp_1",
        "/v1/responses/",
        "//v1/responses",
        "/v1//responses",
        "/v1/./responses",
        "/v1/x/../responses",
        "/v1/%72esponses",
        "/v1/responses%2f..%2ffiles",
        "/v1/%2e%2e/responses",
        "/v1\\responses",
        "/v1/responses;a=b",
        "/v1/responses?",
        "/v1/responses?beta=true",
        "/v1/responses#x",
        "/V1/RESPONSES",
        "http://localhost/v1/responses",
        "https://api.openai.com/v1/responses",
        "*",
        "localhost:443",
    ],
)
def test_other_paths(target: str) -> None:
    """A path that is not exactly one of the allowed paths is refused with status 404, even if it resembles one."""

    async def play() -> None:
        async with relayed() as setting:
            answered = await setting.ask(path=target)
        assert (answered.status, setting.seen) == (404, [])
        assert json.loads(answered.body)["error"]["type"] == "invalid_request_error"
        assert setting.relay.report().refused == {"path": 1}

    asyncio.run(play())


@pytest.mark.parametrize(
    "target",
    [
        "/responses",
        "/v1/files",
        "/v1/complete",
        "/v1/messages/batches",
        "/v1/messages?beta=false",
        "/v1/messages?beta=true&beta=true",
        "/v1/messages?BETA=true",
        "/v1/messages/count_tokens/",
        "/v1/organizations/api_keys",
    ],
)
def test_other_paths_of_anthropic(target: str) -> None:
    """For the Messages API, only a few paths and queries are allowed. A refusal has the form of this API's errors."""

    async def play() -> None:
        async with relayed(plan=CLAUDE) as setting:
            answered = await setting.ask(path=target)
        assert (answered.status, setting.seen) == (404, [])
        assert json.loads(answered.body)["type"] == "error"

    asyncio.run(play())


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "post", "PROPFIND"])
def test_other_methods(method: str) -> None:
    """An allowed path with a method other than POST is refused with status 405."""

    async def play() -> None:
        async with relayed() as setting:
            assert (await setting.ask(method=method)).status == 405
        assert (setting.seen, setting.relay.report().refused) == ([], {"method": 1})

    asyncio.run(play())


@pytest.mark.parametrize("host", ["evil.example", "api.openai.com:80", "169.254.169.254"])
def test_host_of_the_agent_is_nothing(host: str) -> None:
    """The ``Host`` header that the agent sends is replaced by the provider's host."""

    async def play() -> None:
        async with relayed() as setting:
            assert (await setting.ask(host=host)).status == 200
        assert setting.seen[0].headers["host"] == setting.plan.base_url.split("/")[2]

    asyncio.run(play())


@pytest.mark.parametrize(
    "headers",
    [
        {"content_encoding": "gzip"},
        {"content_encoding": "zstd"},
        {"content_encoding": "identity, gzip"},
        {"content_type": "text/plain"},
        {"content_type": "application/json; charset=utf-16"},
        {"content_type": "multipart/form-data; boundary=x"},
        {"content_type": ""},
    ],
)
def test_bodies_that_cannot_be_checked(headers: Any) -> None:
    """A body that is compressed, or whose content type is not JSON in UTF-8, is refused."""

    async def play() -> None:
        async with relayed() as setting:
            assert (await setting.ask(**headers)).status == 400
        assert (setting.seen, setting.relay.report().refused) == ([], {"header": 1})

    asyncio.run(play())


@pytest.mark.parametrize(
    "raw",
    [
        GOOD_HEAD + b"Transfer-Encoding: chunked\r\n" + GOOD_LENGTH + GOOD_BODY,
        GOOD_HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        GOOD_HEAD + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        GOOD_HEAD + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        GOOD_HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n{}    ",
        GOOD_HEAD + b"Content-Length: +5\r\n\r\n{}   ",
        GOOD_HEAD + b"Content-Length: -1\r\n\r\n{}",
        GOOD_HEAD + b"Content-Length: 0x10\r\n\r\n{}",
        GOOD_HEAD + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n{}\r\n0\r\n\r\n",
        GOOD_HEAD + b"X-Bad: a\x00b\r\n" + GOOD_LENGTH + GOOD_BODY,
        GOOD_HEAD.replace(b"Host: x\r\n", b"") + GOOD_LENGTH + GOOD_BODY,
        GOOD_HEAD + b"Host: y\r\n" + GOOD_LENGTH + GOOD_BODY,
        GOOD_HEAD.replace(b"1.1", b"2.0") + GOOD_LENGTH + GOOD_BODY,
        GOOD_HEAD.replace(b"1.1", b"1.9") + GOOD_LENGTH + GOOD_BODY,
        b"POST  /responses HTTP/1.1\r\nHost: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
    ],
)
def test_framing_with_two_readings(raw: bytes) -> None:
    """A request that two parsers could delimit differently, or that is not valid HTTP/1.1, is refused."""

    async def play() -> None:
        async with relayed() as setting:
            got = await setting.raw(raw + b"\r\n\r\n")
        assert got.startswith(b"HTTP/1.1 400 ")
        assert (setting.seen, setting.relay.report().refused) == ([], {"malformed": 1})

    asyncio.run(play())


@pytest.mark.parametrize(
    "raw",
    [
        b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        GOOD_HEAD + b"X-Long: " + b"a" * 200_000 + b"\r\n\r\n",
        GOOD_HEAD + b"X-Many: a\r\n" * 20_000 + b"\r\n",
    ],
)
def test_heads_are_bounded(raw: bytes) -> None:
    """A request whose head exceeds the size limit is refused as malformed."""

    async def play() -> None:
        async with relayed() as setting:
            await setting.raw(raw)
        assert (setting.seen, setting.relay.report().refused) == ([], {"malformed": 1})

    asyncio.run(play())


def test_smuggled_request_is_a_request() -> None:
    """Data after the end of a body is read as the next request, and checked like any other request."""

    async def play() -> None:
        async with relayed() as setting:
            follows = b"DELETE /v1/files/f HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
            got = await setting.raw(GOOD_HEAD + GOOD_LENGTH + GOOD_BODY + follows)
        assert (got.count(b"HTTP/1.1 200 "), got.count(b"HTTP/1.1 404 ")) == (1, 1)
        assert len(setting.seen) == 1

    asyncio.run(play())


def test_chunked_request_is_sent_whole() -> None:
    """A chunked body is forwarded with a Content-Length. Its chunk extensions and trailers are dropped."""
    chunks = b"%x;name=value\r\n" % len(GOOD_BODY) + GOOD_BODY + b"\r\n0\r\nX-Api-Key: trailing\r\n\r\n"

    async def play() -> None:
        async with relayed() as setting:
            got = await setting.raw(GOOD_HEAD + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n" + chunks)
        assert got.startswith(b"HTTP/1.1 200 ")
        assert setting.seen[0].headers["content-length"] == str(len(setting.seen[0].body))
        assert "transfer-encoding" not in setting.seen[0].headers
        assert "trailing" not in str(setting.seen)

    asyncio.run(play())


def test_client_that_waits_to_be_asked() -> None:
    """A client that waits for ``100 Continue`` before it sends its body gets that response."""

    async def play() -> None:
        async with relayed() as setting:
            agent = await setting.connect()
            request, body = setting.request(expect="100-continue")
            await agent.send(request)
            assert isinstance(await agent.next_event(), h11.InformationalResponse)
            await agent.send(h11.Data(data=body))
            await agent.send(h11.EndOfMessage())
            assert (await answer_of(agent)).status == 200
            await agent.close()

    asyncio.run(play())


def test_refused_client_is_not_asked_for_its_body() -> None:
    """A refused client that waits for ``100 Continue`` gets the refusal without having to send its body."""

    async def play() -> None:
        async with relayed() as setting:
            agent = await setting.connect()
            request, _ = setting.request(path="/files", expect="100-continue")
            await agent.send(request)
            assert (await answer_of(agent)).status == 404
            await agent.close()

    asyncio.run(play())


def test_body_that_never_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request whose body does not arrive in time is refused as malformed."""
    monkeypatch.setattr(relay_request, "DRAIN_SECONDS", 0.1)

    async def play() -> None:
        async with relayed(agent_seconds=0.2) as setting:
            assert (await setting.raw(GOOD_HEAD + GOOD_LENGTH + GOOD_BODY[:-1])).startswith(b"HTTP/1.1 400 ")
        assert (setting.seen, setting.relay.report().refused) == ([], {"malformed": 1})

    asyncio.run(play())


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", RelayRefusal.JSON),
        (b"[]", RelayRefusal.JSON),
        (b'"text"', RelayRefusal.JSON),
        (b"{", RelayRefusal.JSON),
        (b"{} {}", RelayRefusal.JSON),
        (b'{"model":"gpt-5.5","model":"other"}', RelayRefusal.JSON),
        (b'{"a":{"type":"function","type":"web_search"}}', RelayRefusal.JSON),
        (b'{"a":"\\u0061","\\u0061":1}', RelayRefusal.JSON),
        (b'{"a":NaN}', RelayRefusal.JSON),
        (b'{"a":Infinity}', RelayRefusal.JSON),
        (b'{"a":1e999}', RelayRefusal.JSON),
        (b'{"a":18446744073709551616}', RelayRefusal.JSON),
        (b'{"a":"\\ud800"}', RelayRefusal.JSON),
        (b'{"a":"\xff"}', RelayRefusal.JSON),
        (b'\xef\xbb\xbf{"a":1}', RelayRefusal.JSON),
        ('{"a":1}'.encode("utf-16"), RelayRefusal.JSON),
        (b'{"a":1,}', RelayRefusal.JSON),
        (b'{"a":1}//', RelayRefusal.JSON),
        (b'{"a":"\n"}', RelayRefusal.JSON),
        (b'{"a":' * 40 + b"1" + b"}" * 40, RelayRefusal.JSON),
        (b'{"a":' + b"[" * 100_000, RelayRefusal.JSON),
        (b'{"a":[' + b"[]," * MAX_VALUES + b"[]]}", RelayRefusal.TOO_LARGE),
        (b'{"a":[' + b'"",' * MAX_VALUES + b'""]}', RelayRefusal.TOO_LARGE),
        (b'{"' + b'\\"' * 1_000_000, RelayRefusal.JSON),
    ],
)
def test_json_with_two_readings(body: bytes, reason: RelayRefusal) -> None:
    """A body that another parser could read differently, or that is expensive to parse, is refused quickly."""
    with processor_seconds(2), pytest.raises(RefusedError) as refused:
        decode(body)
    assert refused.value.reason is reason


def test_many_marks_in_text_are_no_values() -> None:
    """Commas and brackets inside strings, as in source code, do not count as values."""
    text = '[1,2,{"a":\\}],' * MAX_VALUES
    assert decode(json.dumps({"a": [text, text]}).encode()) == {"a": [text, text]}


TEXT = st.text(st.characters(codec="utf-8"))
PLAIN = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | TEXT


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return a strategy for lists and objects of ``inner``."""
    return st.lists(inner, max_size=5) | st.dictionaries(TEXT, inner, max_size=5)


JSON = st.recursive(st.none() | st.booleans() | PLAIN, nested, max_leaves=30)


@given(st.dictionaries(TEXT, JSON, max_size=5))
def test_what_is_sent_is_what_was_read(body: dict[str, Any]) -> None:
    """A body that is parsed and serialized again has the same values in the same order."""
    again = decode(encode(decode(json.dumps(body).encode())))
    assert json.dumps(again) == json.dumps(body)


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_reading_raises_refusals_alone(data: bytes) -> None:
    """Any data is read as an object or refused with :class:`RefusedError`: no other exception is raised."""
    with suppress(RefusedError):
        assert isinstance(decode(data), dict)


def test_huge_body_is_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """A body beyond the size limit is refused before all of it has arrived, with or without a Content-Length."""
    monkeypatch.setattr(relay_request, "DRAIN_SECONDS", 0.2)

    async def play() -> None:
        async with relayed() as setting:
            head = b"Content-Length: %d\r\n\r\n" % (MAX_BODY_BYTES + 1)
            got = await setting.raw(GOOD_HEAD + head, seconds=30)
            assert got.startswith(b"HTTP/1.1 413 ")
            chunk = b"%x\r\n" % 1_000_000 + b" " * 1_000_000 + b"\r\n"
            got = await setting.raw(GOOD_HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 40, seconds=30)
        assert got == b"" or got.startswith(b"HTTP/1.1 413 ")
        assert (setting.seen, setting.relay.report().refused) == ([], {"too_large": 2})

    asyncio.run(play())


def test_bodies_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """All bodies in memory share one size limit, and the body of a finished request no longer counts."""
    monkeypatch.setattr(relay_request, "MAX_HELD_BYTES", 3 * len(GOOD_BODY) // 2)

    async def play() -> None:
        async with relayed() as setting:
            first = await setting.connect()
            request, body = setting.request(GOOD_BODY)
            await first.send(request)
            await first.send(h11.Data(data=body[:-1]))
            await asyncio.sleep(0.05)
            assert (await setting.ask()).status == 413
            await first.send(h11.Data(data=body[-1:]))
            await first.send(h11.EndOfMessage())
            assert (await answer_of(first)).status == 200
            await first.close()
            assert (await setting.ask()).status == 200

    asyncio.run(play())


def test_refused_request_is_trouble_of_the_request() -> None:
    """A refused model request is reported as ``REJECTED`` with the reason, and does not count as a request."""

    async def play() -> None:
        async with relayed() as setting:
            await setting.ask(BODIES[Provider.OPENAI] | {"model": "other"})
        report = setting.relay.report()
        assert (report.trouble, report.message) == (Trouble.REJECTED, "refused by the relay: model")
        assert (report.requests, report.bytes) == (0, 0)

    asyncio.run(play())


def test_refusals_do_not_fill_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """All refused requests are counted, but beyond a limit they are not logged."""
    monkeypatch.setattr("securebench.egress.relay.tally.MAX_REFUSED_LINES", 3)

    async def play() -> None:
        async with relayed() as setting:
            for _ in range(5):
                await setting.ask(path="/files")
            await setting.ask()
        assert [line["reason"] for line in setting.lines] == ["path", "path", "path", ""]
        assert setting.relay.report().refused == {"path": 5}

    asyncio.run(play())


HEADS = st.sampled_from([b"POST", b"GET", b"HEAD", b"CONNECT"]).flatmap(
    lambda method: st.sampled_from([b"/responses", b"/v1/responses", b"/", b"*", b"http://x/responses"]).map(
        lambda target: method + b" " + target + b" HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    )
)


@given(
    st.one_of(
        st.binary(max_size=300),
        st.tuples(HEADS, st.binary(max_size=60), st.binary(max_size=60)).map(b"".join),
        st.tuples(HEADS, st.just(b"Content-Length: 20\r\n\r\n"), st.binary(min_size=20, max_size=60)).map(b"".join),
    )
)
def test_admission_never_breaks(raw: bytes) -> None:
    """Whatever bytes an agent sends, no invalid request is forwarded, and the next valid one is served."""

    async def play() -> None:
        async with relayed() as setting:
            reader, writer = await asyncio.open_connection("127.0.0.1", setting.port)
            writer.write(raw + b"\r\n\r\n")
            writer.write_eof()
            await reader.read()
            writer.close()
            assert (await setting.ask()).status == 200
        assert len(setting.seen) == 1
        assert KEY not in str(setting.lines)

    asyncio.run(play())


def test_agent_that_leaves() -> None:
    """If the agent disconnects before the answer is over, the request is logged and no trouble is reported."""

    async def play() -> None:
        async with relayed() as setting:
            agent = await setting.connect()
            await send(agent, setting.request())
            agent.writer.transport.abort()
            await setting.has_logged.wait()
        assert setting.relay.report().trouble is None

    asyncio.run(play())
