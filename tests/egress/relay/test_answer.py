"""Answers of a provider, most of them failed or invalid: what the relay reports, and what it sends to the agent."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import h11
import pytest

from relay_setup import (
    CHAT,
    CLAUDE,
    GEMINI,
    KEY,
    PLAN,
    QUICK,
    STREAM,
    Setting,
    answering,
    relayed,
    respond,
    send,
    streaming,
)
from securebench.egress.model import Provider, Trouble
from securebench.egress.relay import answer as relay_answer
from securebench.egress.relay.error_responses import MAX_ERROR_BYTES

if TYPE_CHECKING:
    from relay_setup import Answered, Script, Seen
    from securebench.egress.http_streams import HttpPeer

FAILED = {"type": "response.failed"}
EVERY = pytest.mark.parametrize("plan", [PLAN, CLAUDE, CHAT, GEMINI], ids=["openai", "anthropic", "chat", "gemini"])


async def ask_once(script: Script, plan: Any = PLAN, **how: Any) -> tuple[Answered, Setting]:
    """Send one request to a provider that follows ``script``. Return the answer and the setting."""
    async with relayed(script, plan, **how) as setting:
        answered = await setting.ask()
    return answered, setting


@EVERY
@pytest.mark.parametrize(
    ("status", "trouble"),
    [
        (400, Trouble.REJECTED),
        (401, Trouble.REFUSED),
        (402, Trouble.REFUSED),
        (403, Trouble.REFUSED),
        (404, Trouble.REJECTED),
        (408, Trouble.FAILED),
        (413, Trouble.REJECTED),
        (422, Trouble.REJECTED),
        (429, Trouble.RATE_LIMITED),
        (500, Trouble.FAILED),
        (503, Trouble.FAILED),
        (529, Trouble.FAILED),
    ],
)
def test_errors_pass_and_are_told_apart(plan: Any, status: int, trouble: Trouble) -> None:
    """An error response of the provider reaches the agent unchanged, and the report classifies it."""
    body = b'{"type":"error","error":{"type":"some_error","message":"as the provider says"}}'

    async def play() -> None:
        script = answering(status, body, retry_after="7")
        answered, setting = await ask_once(script, plan)
        report = setting.relay.report()
        assert (answered.status, answered.body, answered.headers["retry-after"]) == (status, body, "7")
        assert (report.trouble, report.message) == (trouble, f"the provider answered {status}")
        assert (report.answered, report.statuses) == (0, {str(status): 1})

    asyncio.run(play())


@pytest.mark.parametrize(
    ("plan", "status", "error", "trouble"),
    [
        (PLAN, 429, {"code": "insufficient_quota"}, Trouble.REFUSED),
        (PLAN, 400, {"code": "invalid_api_key"}, Trouble.REFUSED),
        (PLAN, 400, {"code": ["no", "text"]}, Trouble.REJECTED),
        (CLAUDE, 400, {"message": "Your credit balance is too low to access the API."}, Trouble.REFUSED),
        (CLAUDE, 400, {"message": "max_tokens: too large"}, Trouble.REJECTED),
        (CLAUDE, 400, {"message": None}, Trouble.REJECTED),
        (GEMINI, 400, {"code": 400, "details": [{"reason": "API_KEY_INVALID"}]}, Trouble.REFUSED),
        (GEMINI, 400, {"code": 400, "status": "FAILED_PRECONDITION"}, Trouble.REFUSED),
        (GEMINI, 400, {"code": True, "status": "INVALID_ARGUMENT", "details": [5]}, Trouble.REJECTED),
    ],
)
def test_errors_say_more_than_statuses(plan: Any, status: int, error: Any, trouble: Trouble) -> None:
    """An error about a wrong key or a lack of credit is ``REFUSED``, whatever its status. Other errors are not."""

    async def play() -> None:
        _, setting = await ask_once(answering(status, json.dumps({"error": error}).encode()), plan)
        assert setting.relay.report().trouble is trouble

    asyncio.run(play())


@EVERY
def test_good_answer_ends_trouble(plan: Any) -> None:
    """The report has the trouble of the last model request only: a successful retry clears it."""
    statuses = iter([529, 200])

    async def script(seen: Seen, peer: HttpPeer) -> None:
        status = next(statuses)
        kind = "text/event-stream" if status == 200 else "application/json"
        await respond(peer, status, STREAM[plan.provider] if status == 200 else b"{}", content_type=kind)

    async def play() -> None:
        async with relayed(script, plan) as setting:
            await setting.ask()
            assert setting.relay.report().trouble is Trouble.FAILED
            await setting.ask()
        report = setting.relay.report()
        assert (report.trouble, report.message, report.answered) == (None, "", 1)

    asyncio.run(play())


def test_count_of_tokens_is_no_model() -> None:
    """A request that only counts tokens never sets a trouble, is not counted as an answer and uses no tokens."""

    async def play() -> None:
        async with relayed(answering(500), CLAUDE) as setting:
            await setting.ask(path="/v1/messages/count_tokens")
        report = setting.relay.report()
        assert (report.trouble, report.answered, report.statuses) == (None, 0, {"500": 1})
        async with relayed(answering(200, b'{"input_tokens": 1200}'), CLAUDE) as setting:
            await setting.ask(path="/v1/messages/count_tokens")
        report = setting.relay.report()
        assert (report.answered, report.input_tokens, report.output_tokens) == (0, 0, 0)

    asyncio.run(play())


def test_answer_without_stream() -> None:
    """The tokens of an answer that is not streamed are counted, and the answer is forwarded unchanged."""
    body = b'{"status":"completed","usage":{"input_tokens":7,"output_tokens":3}}'

    async def play() -> None:
        answered, setting = await ask_once(answering(200, body))
        report = setting.relay.report()
        assert (answered.body, report.answered, report.input_tokens, report.output_tokens) == (body, 1, 7, 3)

    asyncio.run(play())


def test_failed_answer_without_stream() -> None:
    """A response of status 200 that reports a failure has the trouble of its error, and is not counted as an answer."""
    body = b'{"status":"failed","error":{"code":"rate_limit_exceeded"},"usage":{"input_tokens":7,"output_tokens":3}}'

    async def play() -> None:
        _, setting = await ask_once(answering(200, body))
        report = setting.relay.report()
        assert (report.trouble, report.answered, report.input_tokens) == (Trouble.RATE_LIMITED, 0, 7)

    asyncio.run(play())


@pytest.mark.parametrize(
    ("plan", "last", "trouble"),
    [
        (PLAN, {"type": "response.failed", "response": {"error": {"code": "server_error"}}}, Trouble.FAILED),
        (
            PLAN,
            {"type": "response.failed", "response": {"error": {"code": "rate_limit_exceeded"}}},
            Trouble.RATE_LIMITED,
        ),
        (
            PLAN,
            {"type": "response.failed", "response": {"error": {"code": "context_length_exceeded"}}},
            Trouble.REJECTED,
        ),
        (PLAN, FAILED | {"response": None}, Trouble.FAILED),
        (PLAN, {"type": "error", "code": "insufficient_quota"}, Trouble.REFUSED),
        (PLAN, {"type": "error", "error": {"code": 5}}, Trouble.FAILED),
        (CLAUDE, {"type": "error", "error": {"type": "overloaded_error"}}, Trouble.FAILED),
        (CLAUDE, {"type": "error", "error": {"type": "rate_limit_error"}}, Trouble.RATE_LIMITED),
        (CLAUDE, {"type": "error", "error": {"type": "authentication_error"}}, Trouble.REFUSED),
        (CLAUDE, {"type": "error", "error": {"type": "invalid_request_error"}}, Trouble.REJECTED),
        (CLAUDE, {"type": "error", "error": None}, Trouble.FAILED),
        (GEMINI, {"error": {"code": 503, "status": "UNAVAILABLE"}}, Trouble.FAILED),
        (GEMINI, {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED"}}, Trouble.RATE_LIMITED),
        (GEMINI, {"error": "broken"}, Trouble.FAILED),
    ],
)
def test_errors_in_a_stream(plan: Any, last: Any, trouble: Trouble) -> None:
    """An error within a stream of status 200 is reported as a trouble, like an error response."""
    body = b"data: " + json.dumps(last, separators=(",", ":")).encode() + b"\n\n"

    async def play() -> None:
        answered, setting = await ask_once(streaming(body), plan)
        assert (answered.body, answered.is_whole) == (body, True)
        assert (setting.relay.report().trouble, setting.relay.report().answered) == (trouble, 0)

    asyncio.run(play())


@EVERY
def test_stream_without_its_end(plan: Any) -> None:
    """A stream without its last event is the provider's failure, even if the HTTP body is complete."""

    async def play() -> None:
        answered, setting = await ask_once(streaming(b'data: {"type":"ping"}\n\n'), plan)
        assert answered.is_whole
        assert setting.relay.report().trouble is Trouble.FAILED

    asyncio.run(play())


@EVERY
def test_cut_stream_is_cut_for_the_agent(plan: Any) -> None:
    """If the provider cuts the connection, the agent's is cut too, so the agent sees that the answer is incomplete."""

    async def script(seen: Seen, peer: HttpPeer) -> None:
        await peer.send(h11.Response(status_code=200, headers=[("content-type", "text/event-stream")]))
        await peer.send(h11.Data(data=STREAM[plan.provider][:40]))
        await asyncio.sleep(0.05)
        peer.writer.transport.abort()

    async def play() -> None:
        answered, setting = await ask_once(script, plan)
        assert (answered.status, answered.is_whole) == (200, False)
        assert setting.relay.report().trouble is Trouble.FAILED
        assert setting.lines[0]["status"] == 200

    asyncio.run(play())


@pytest.mark.parametrize("begins", [False, True])
def test_silent_provider(begins: bool) -> None:
    """A provider that sends nothing for too long counts as unreachable, both before and within an answer."""

    async def script(seen: Seen, peer: HttpPeer) -> None:
        if begins:
            await peer.send(h11.Response(status_code=200, headers=[("content-type", "text/event-stream")]))
        await peer.reader.read()

    async def play() -> None:
        answered, setting = await ask_once(script, timeouts=QUICK)
        assert (answered.status, answered.is_whole) == ((200, False) if begins else (502, True))
        report = setting.relay.report()
        assert (report.trouble, report.message) == (Trouble.UNREACHABLE, "the provider sent nothing for 0.3 seconds")

    asyncio.run(play())


def test_slow_stream_is_waited_for() -> None:
    """A stream may last longer than ``between_bytes``, which limits only the silence between two pieces."""

    async def script(seen: Seen, peer: HttpPeer) -> None:
        await peer.send(h11.Response(status_code=200, headers=[("content-type", "text/event-stream")]))
        for _ in range(5):
            await asyncio.sleep(0.15)
            await peer.send(h11.Data(data=b": waiting\n\n"))
        await peer.send(h11.Data(data=STREAM[Provider.OPENAI]))
        await peer.send(h11.EndOfMessage())

    async def play() -> None:
        answered, setting = await ask_once(script, timeouts=replace(QUICK, whole_answer=9.0))
        assert answered.is_whole
        assert setting.relay.report().trouble is None

    asyncio.run(play())


def test_provider_that_is_not_there() -> None:
    """A provider that accepts no connection counts as unreachable, and the response allows the agent to retry."""

    async def play() -> None:
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        answered, setting = await ask_once(answering(), replace(PLAN, base_url=f"http://127.0.0.1:{port}/v1"))
        assert (answered.status, answered.headers["x-should-retry"]) == (502, "true")
        report = setting.relay.report()
        assert (report.trouble, report.statuses, report.requests) == (Trouble.UNREACHABLE, {}, 1)
        assert (setting.lines[0]["decision"], setting.lines[0]["reason"]) == ("failed", "")

    asyncio.run(play())


@pytest.mark.parametrize("host", ["a..b", "\u2603" * 80, "nothing.invalid"])
def test_provider_whose_name_is_none(host: str) -> None:
    """A provider whose host name is invalid or cannot be resolved counts as unreachable."""

    async def play() -> None:
        answered, setting = await ask_once(answering(), replace(PLAN, base_url=f"http://{host}/v1"))
        assert answered.status == 502
        assert setting.relay.report().trouble is Trouble.UNREACHABLE

    asyncio.run(play())


@pytest.mark.parametrize("status", [301, 302, 307, 308, 304])
def test_redirects_are_not_followed(status: int) -> None:
    """A redirect is neither followed nor forwarded: the key goes to one host, and the agent is not sent elsewhere."""

    async def play() -> None:
        answered, setting = await ask_once(answering(status, b"", location="http://127.0.0.1:9/"))
        assert answered.status == 502
        assert "location" not in answered.headers
        assert len(setting.seen) == 1
        assert setting.relay.report().trouble is Trouble.FAILED

    asyncio.run(play())


def brotli_of(data: bytes) -> bytes:
    """Return ``data`` compressed with Brotli. Skip the test if the library is not installed."""
    compressed: bytes = pytest.importorskip("brotli").compress(data)
    return compressed


ENCODERS: dict[str, Any] = {
    "gzip": gzip.compress,
    "X-GZip": lambda data: gzip.compress(data[:40]) + gzip.compress(data[40:]),
    "deflate": zlib.compress,
    "identity, deflate": lambda data: zlib.compress(data, wbits=-15),
    "br": brotli_of,
}


@pytest.mark.parametrize("encoding", ENCODERS)
@pytest.mark.parametrize("size", [1, 10_000])
def test_compressed_answers(encoding: str, size: int) -> None:
    """The agent gets the decompressed answer for each encoding, whatever the size of the pieces."""
    data = ENCODERS[encoding](STREAM[Provider.OPENAI])

    async def script(seen: Seen, peer: HttpPeer) -> None:
        assert seen.headers["accept-encoding"] == "identity"
        headers = [("content-type", "text/event-stream"), ("content-encoding", encoding)]
        await peer.send(h11.Response(status_code=200, headers=headers))
        for start in range(0, len(data), size):
            await peer.send(h11.Data(data=data[start : start + size]))
        await peer.send(h11.EndOfMessage())

    async def play() -> None:
        answered, setting = await ask_once(script)
        report = setting.relay.report()
        assert (answered.body, answered.is_whole) == (STREAM[Provider.OPENAI], True)
        assert "content-encoding" not in answered.headers
        assert (report.input_tokens, report.output_tokens, report.trouble) == (100, 20, None)

    asyncio.run(play())


@pytest.mark.parametrize("encoding", [name for name in ENCODERS if "," not in name])
def test_a_small_answer_that_expands_to_much(encoding: str) -> None:
    """To limit memory, a compressed answer that expands to many megabytes is cut off. An error response is replaced."""
    bomb = ENCODERS[encoding](bytes(8 * 1024 * 1024))

    async def play() -> None:
        for status in (200, 500):
            answered, setting = await ask_once(answering(status, bomb, content_encoding=encoding))
            assert len(answered.body) <= 2 * 1024 * 1024
            assert (answered.status, answered.is_whole) == (status, status == 500)
            assert setting.relay.report().trouble is Trouble.FAILED

    asyncio.run(play())


@pytest.mark.parametrize(
    ("encoding", "data"),
    [
        ("gzip", b"\x1f\x8b"),
        ("gzip", gzip.compress(b"{}" * 500)[:-9]),
        ("gzip", b"not gzip"),
        ("deflate", zlib.compress(b"{}") + b"more"),
        ("gzip, gzip", gzip.compress(gzip.compress(b"{}"))),
        ("compress", b"x"),
    ],
    ids=["a beginning", "cut", "not gzip", "more after it", "twice", "compress"],
)
def test_compressed_answers_that_cannot_be_read(encoding: str, data: bytes) -> None:
    """A compressed answer that cannot be read is the provider's failure. The agent gets 502 or an incomplete answer.

    An error response that cannot be read is replaced by a 502, but classified by its own status.
    """

    async def play() -> None:
        answered, setting = await ask_once(answering(200, data, content_encoding=encoding))
        assert (answered.status, answered.is_whole) in ((200, False), (502, True))
        assert setting.relay.report().trouble is Trouble.FAILED
        answered, setting = await ask_once(answering(401, data, content_encoding=encoding))
        assert answered.status == 502
        assert setting.relay.report().trouble is Trouble.REFUSED

    asyncio.run(play())


def test_a_compressed_error() -> None:
    """A compressed error response is classified, and forwarded without the key, like an uncompressed one."""
    error = json.dumps({"error": {"code": "insufficient_quota", "message": KEY}}).encode()

    async def play() -> None:
        answered, setting = await ask_once(answering(429, gzip.compress(error), content_encoding="gzip"))
        assert (answered.status, answered.message) == (429, "<redacted>")
        assert setting.relay.report().trouble is Trouble.REFUSED

    asyncio.run(play())


@pytest.mark.parametrize(
    "garbage", [b"HTTP/2 what\r\n\r\n", b"\x00\x01\x02", b"HTTP/1.1 200 OK\r\nA b: c\r\n\r\n", b""]
)
def test_provider_that_speaks_no_http(garbage: bytes) -> None:
    """A response that is not valid HTTP/1.1 is the provider's failure."""

    async def script(seen: Seen, peer: HttpPeer) -> None:
        peer.writer.write(garbage)
        await peer.writer.drain()
        peer.writer.close()

    async def play() -> None:
        answered, setting = await ask_once(script)
        assert answered.status == 502
        assert setting.relay.report().trouble is Trouble.FAILED

    asyncio.run(play())


def test_interim_answers_are_skipped() -> None:
    """Interim responses (1xx) are skipped, but too many of them are a failure."""

    async def play() -> None:
        for interim, status in ((2, 200), (100, 502)):

            async def script(seen: Seen, peer: HttpPeer, interim: int = interim) -> None:
                for _ in range(interim):
                    await peer.send(h11.InformationalResponse(status_code=103, headers=[]))
                await respond(peer, 200, STREAM[Provider.OPENAI], content_type="text/event-stream")

            answered, _ = await ask_once(script)
            assert answered.status == status

    asyncio.run(play())


def test_long_error_is_told_in_short() -> None:
    """An error response of more than ``MAX_ERROR_BYTES`` is replaced by a short one with the same status."""

    async def play() -> None:
        answered, setting = await ask_once(answering(500, b'{"a":"' + b"x" * MAX_ERROR_BYTES + b'"}'))
        assert (answered.status, len(answered.body) < 500) == (500, True)
        assert setting.relay.report().trouble is Trouble.FAILED

    asyncio.run(play())


def test_agent_that_takes_nothing() -> None:
    """If the agent does not read, the relay stops reading from the provider and then gives up, without a trouble."""
    sent = 0

    async def script(seen: Seen, peer: HttpPeer) -> None:
        nonlocal sent
        await peer.send(h11.Response(status_code=200, headers=[("content-type", "text/event-stream")]))
        for _ in range(1000):
            await peer.send(h11.Data(data=b": filler\n\n" * 6500))
            sent += 65_000

    async def play() -> None:
        async with relayed(script, agent_seconds=0.5) as setting:
            agent = await setting.connect()
            await send(agent, setting.request())
            await setting.has_logged.wait()
            await agent.close()
        assert sent < 40_000_000
        assert setting.relay.report().trouble is None

    asyncio.run(play())


def test_task_that_ends_while_the_provider_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a task ends after a long wait for a streamed answer to begin, the provider counts as unreachable."""
    monkeypatch.setattr(relay_answer, "HANGING_SECONDS", 0.05)

    async def script(seen: Seen, peer: HttpPeer) -> None:
        await peer.reader.read()

    async def play() -> None:
        async with relayed(script) as setting:
            asking = asyncio.create_task(setting.ask())
            await asyncio.sleep(0.2)
            await setting.relay.close()
            with pytest.raises(h11.RemoteProtocolError):
                await asking
        assert setting.relay.report().trouble is Trouble.UNREACHABLE

    asyncio.run(play())


def test_key_is_in_no_exception(capfd: pytest.CaptureFixture[str]) -> None:
    """If an invalid response contains the key, no output, log or report of the relay contains it."""

    async def script(seen: Seen, peer: HttpPeer) -> None:
        peer.writer.write(f"HTTP/1.1 200 {KEY}\r\nx: {KEY}\r\nbroken {KEY}\r\n\r\n".encode())
        await peer.writer.drain()
        peer.writer.close()

    async def play() -> None:
        answered, setting = await ask_once(script)
        assert KEY.encode() not in answered.body
        assert KEY not in str(setting.lines) + str(setting.relay.report())

    asyncio.run(play())
    assert KEY not in "".join(capfd.readouterr())


@EVERY
def test_a_rejected_key_is_not_repeated(plan: Any) -> None:
    """The agent is told not to retry after 401 and 403, even if the provider allows it: the key stays wrong.

    Without ``x-should-retry: false``, Claude Code retries five times after a 401.
    """

    async def play() -> None:
        for status, retries in ((401, "false"), (403, "false"), (500, "true")):
            answered, _ = await ask_once(answering(status, b"{}", x_should_retry="true"), plan)
            assert answered.headers["x-should-retry"] == retries

    asyncio.run(play())


def test_an_answer_that_is_not_streamed_may_use_all_its_time() -> None:
    """An answer that is not streamed has only the timeout ``whole_answer``.

    No other timeout applies, because the provider sends nothing until the answer is complete.
    """

    async def slow(seen: Seen, peer: HttpPeer) -> None:
        await asyncio.sleep(0.6)
        await respond(peer, 200, b'{"status": "completed"}', content_type="application/json")

    async def play() -> None:
        for stream, status, trouble in ((True, 502, Trouble.UNREACHABLE), (False, 200, None)):
            async with relayed(slow, timeouts=replace(QUICK, whole_answer=3.0)) as setting:
                answered = await setting.ask({"model": "gpt-5.5", "input": "hi", "store": False, "stream": stream})
                assert answered.status == status
            assert setting.relay.report().trouble is trouble

    asyncio.run(play())


def test_a_whole_answer_has_an_end() -> None:
    """A stream that never ends is cut off after ``whole_answer`` seconds, even if it is never silent."""

    async def drip(seen: Seen, peer: HttpPeer) -> None:
        await peer.send(h11.Response(status_code=200, headers=[("content-type", "text/event-stream")]))
        while True:
            await asyncio.sleep(0.05)
            await peer.send(h11.Data(data=b": waiting\n\n"))

    async def play() -> None:
        answered, setting = await ask_once(drip, timeouts=QUICK)
        assert not answered.is_whole
        assert "did not end within 0.9 seconds" in setting.relay.report().message

    asyncio.run(play())


def test_a_silent_wait_that_is_normal_is_no_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that ends while it waits for an answer that is not streamed sets no trouble: such a wait is normal."""
    monkeypatch.setattr(relay_answer, "HANGING_SECONDS", 0.05)

    async def script(seen: Seen, peer: HttpPeer) -> None:
        await peer.reader.read()

    async def play() -> None:
        async with relayed(script) as setting:
            body = {"model": "gpt-5.5", "input": "hi", "store": False}
            asking = asyncio.create_task(setting.ask(body))
            await asyncio.sleep(0.2)
            await setting.relay.close()
            with pytest.raises(h11.RemoteProtocolError):
                await asking
        assert setting.relay.report().trouble is None

    asyncio.run(play())


_POLICY = [
    (PLAN, b'data: {"type":"response.failed","response":{"error":{"code":"cyber_policy"}}}\n\n'),
    (PLAN, b'data: {"type":"response.failed","response":{"error":{"code":"bio_policy"}}}\n\n'),
    (PLAN, b'data: {"type":"error","error":{"code":"content_policy_violation"}}\n\n'),
    (
        PLAN,
        (
            b'data: {"type":"response.incomplete","response":{"status":"incomplete",'
            b'"incomplete_details":{"reason":"content_filter"}}}\n\n'
        ),
    ),
    (
        PLAN,
        (
            b'data: {"type":"response.completed","response":{"status":"completed","output":[{"type":"message",'
            b'"content":[{"type":"refusal","refusal":"I will not."}]}]}}\n\n'
        ),
    ),
    (
        PLAN,
        (
            b'data: {"type":"response.failed","response":{"error":{"code":"invalid_prompt",'
            b'"message":"flagged as potentially violating our usage policy"}}}\n\n'
        ),
    ),
    (
        CLAUDE,
        b'data: {"type":"message_delta","delta":{"stop_reason":"refusal"}}\n\ndata: {"type":"message_stop"}\n\n',
    ),
    (GEMINI, b'data: {"candidates":[{"finishReason":"SAFETY","index":0}]}\n\n'),
    (
        GEMINI,
        b'data: {"promptFeedback":{"blockReason":"PROHIBITED_CONTENT"},"usageMetadata":{"totalTokenCount":9}}\n\n',
    ),
]


@pytest.mark.parametrize(("plan", "body"), _POLICY)
def test_a_refusal_by_policy_is_no_failure_of_the_provider(plan: Any, body: bytes) -> None:
    """If the model or a policy of the provider refuses, the trouble is ``DECLINED``, which is not an outage."""

    async def play() -> None:
        _, setting = await ask_once(streaming(body), plan)
        assert setting.relay.report().trouble is Trouble.DECLINED

    asyncio.run(play())


@pytest.mark.parametrize(
    ("plan", "error"),
    [
        (PLAN, {"code": "content_filter"}),
        (PLAN, {"code": "cyber_policy"}),
        (CLAUDE, {"type": "invalid_request_error", "message": "Output blocked by content filtering policy"}),
    ],
)
def test_a_refusal_by_policy_under_an_errors_status(plan: Any, error: Any) -> None:
    """If a policy of the provider refuses with the status 400, the trouble is ``DECLINED`` and not ``REJECTED``."""

    async def play() -> None:
        _, setting = await ask_once(answering(400, json.dumps({"error": error}).encode()), plan)
        assert setting.relay.report().trouble is Trouble.DECLINED

    asyncio.run(play())


def test_which_model_answered_is_counted() -> None:
    """Answers are counted by the dated model that the provider names. An invalid name is ignored."""
    completed = b'data: {"type":"response.completed","response":{"status":"completed","model":"%s"}}\n\n'

    async def play() -> None:
        names = iter([b"gpt-5.5-2026-04-01", b"gpt-5.5-2026-04-01", b"no <name>"])

        async def script(seen: Seen, peer: HttpPeer) -> None:
            await respond(peer, 200, completed % next(names), content_type="text/event-stream")

        async with relayed(script) as setting:
            for _ in range(3):
                await setting.ask()
        report = setting.relay.report()
        assert (report.model, report.models) == ("gpt-5.5", {"gpt-5.5-2026-04-01": 2})

    asyncio.run(play())


def test_what_earlier_tries_spent_counts() -> None:
    """Earlier tries of a task count towards its budget. If they used it up, a request is refused."""

    async def play() -> None:
        for plan in (
            replace(PLAN, spent_requests=1000),
            replace(PLAN, spent_tokens=10**9),
            replace(PLAN, spent_bytes=10**9),
        ):
            answered, setting = await ask_once(answering(), plan)
            assert (answered.status, setting.seen) == (429, [])
            assert setting.relay.report().trouble is Trouble.OUT_OF_BUDGET
            (line,) = setting.lines
            assert (line["decision"], line["reason"], line["provider_status"]) == ("denied", "budget", 0)

    asyncio.run(play())
