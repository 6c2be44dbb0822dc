"""Realistic traffic of each dialect (a provider's API): all events, cuts at all stages, long waits, large requests."""

from __future__ import annotations

import asyncio
import json
import selectors
from typing import TYPE_CHECKING, Any

import h11
import pytest

from relay_setup import KEY, Setting, answering, relayed, respond
from securebench.egress.model import Trouble
from securebench.egress.relay import answer as relay_answer
from securebench.limits import ProviderTimeouts
from wire_examples import EXAMPLES, GIVEN, TAKEN, event

if TYPE_CHECKING:
    from relay_setup import Seen
    from securebench.egress.http_streams import HttpPeer
    from securebench.egress.model import RelayReport
    from wire_examples import WireExample

TIMEOUTS = ProviderTimeouts()
every_dialect = pytest.mark.parametrize("wire", EXAMPLES.values(), ids=list(EXAMPLES))


async def sent(peer: HttpPeer, *pieces: bytes, ends: bool = True) -> None:
    """Stream ``pieces``, then end the answer, or abort the connection if ``ends`` is false."""
    await peer.send(h11.Response(status_code=200, headers=[("content-type", "text/event-stream; charset=utf-8")]))
    for piece in pieces:
        await peer.send(h11.Data(data=piece))
    if ends:
        await peer.send(h11.EndOfMessage())
    else:
        await peer.writer.drain()
        peer.writer.transport.abort()


def counts(report: RelayReport) -> tuple[int, int, int, Trouble | None]:
    """Return the number of answers, their input and output tokens, and the last trouble."""
    return report.answered, report.input_tokens, report.output_tokens, report.trouble


@every_dialect
@pytest.mark.parametrize("size", [7, 100_000])
def test_every_event(wire: WireExample, size: int) -> None:
    """Each event that the client libraries know arrives unchanged, and the tokens, the model and the end are read."""
    data = b"".join(wire.events)

    async def script(_seen: Seen, peer: HttpPeer) -> None:
        await sent(peer, *(data[start : start + size] for start in range(0, len(data), size)))

    async def play() -> None:
        async with relayed(script, wire.plan, timeouts=TIMEOUTS) as setting:
            answered = await setting.ask(wire.request("hi"))
            report = setting.relay.report()
            assert (answered.is_whole, answered.body) == (True, data)
            assert counts(report) == (1, TAKEN, GIVEN, None)
            assert dict(report.models) == {wire.model: 1}
            assert setting.seen[0].json == wire.request("hi")

    asyncio.run(play())


def test_no_event_is_forgotten() -> None:
    """The example of the Responses API has every event type except the three that end an answer differently."""
    kinds = {json.loads(data.partition(b"data: ")[2])["type"] for data in EXAMPLES["responses"].events}
    assert len(kinds) == 59 - len({"error", "response.failed", "response.incomplete"})


@every_dialect
def test_a_whole_answer(wire: WireExample) -> None:
    """An answer that is not streamed arrives unchanged, and its tokens and its model are read."""
    data = json.dumps(wire.whole).encode()
    body = {name: value for name, value in wire.request("hi").items() if name not in ("stream", "stream_options")}

    async def play() -> None:
        async with relayed(answering(200, data), wire.plan) as setting:
            answered = await setting.ask(body, wire.whole_path)
            report = setting.relay.report()
        assert answered.body == data
        assert counts(report) == (1, TAKEN, GIVEN, None)
        assert dict(report.models) == {wire.model: 1}

    asyncio.run(play())


@every_dialect
def test_cuts_at_every_stage(wire: WireExample) -> None:
    """If the provider aborts the connection, its answer counts as a failure, and is cut off for the agent, too.

    If the response ends normally, it counts as a failure unless it has the event that completes the answer.
    """
    complete = len(wire.events) + wire.end + 1
    cuts = [
        (stage, extra, ends)
        for stage in range(len(wire.events))
        for extra in (b"", b"data: {")
        for ends in (True, False)
    ]
    coming = iter(cuts)

    async def script(_seen: Seen, peer: HttpPeer) -> None:
        stage, extra, ends = next(coming)
        await sent(peer, b"".join(wire.events[:stage]) + extra, ends=ends)

    async def play(setting: Setting) -> None:
        for stage, extra, ends in cuts:
            before = setting.relay.report()
            answered = await setting.ask(wire.request("hi"))
            report = setting.relay.report()
            is_answer = ends and stage >= complete
            assert answered.is_whole is ends
            assert answered.body == b"".join(wire.events[:stage]) + extra or not ends
            assert report.trouble is (None if is_answer else Trouble.FAILED)
            assert report.answered - before.answered == is_answer
            assert report.output_tokens > before.output_tokens or stage == 0

    async def served() -> None:
        async with relayed(script, wire.plan, timeouts=TIMEOUTS) as setting:
            await play(setting)

    asyncio.run(served())


@every_dialect
def test_lines_of_a_megabyte(wire: WireExample) -> None:
    """An event of more than a megabyte arrives unchanged, and the events after it are read."""
    long = wire.text_event("x" * 1024 * 1024)
    data = b"".join([wire.events[0], long, *wire.events[1:]])

    async def script(_seen: Seen, peer: HttpPeer) -> None:
        await sent(peer, *(data[start : start + 60_000] for start in range(0, len(data), 60_000)))

    async def play() -> None:
        async with relayed(script, wire.plan, timeouts=TIMEOUTS) as setting:
            answered = await setting.ask(wire.request("hi"))
            assert answered.body == data
            assert counts(setting.relay.report()) == (1, TAKEN, GIVEN, None)

    asyncio.run(play())


@pytest.mark.parametrize(
    "wire",
    [
        pytest.param(wire, id=name, marks=() if name == "chat_completions" else pytest.mark.long)
        for name, wire in EXAMPLES.items()
    ],
)
def test_requests_of_20_megabytes(wire: WireExample) -> None:
    """A request of more than 20 megabytes reaches the provider with the same values."""
    body = wire.request("long \u00e9\n" * (20_000_000 // 8))

    async def script(_seen: Seen, peer: HttpPeer) -> None:
        await sent(peer, *wire.events)

    async def play() -> None:
        async with relayed(script, wire.plan, timeouts=TIMEOUTS, agent_seconds=60) as setting:
            answered = await setting.ask(body)
            assert answered.status == 200
            (seen,) = setting.seen
            assert len(seen.body) > 20_000_000
            assert seen.json == body
            assert setting.relay.report().answered == 1

    asyncio.run(play())


class _SkippingSelector(selectors.DefaultSelector):
    """A selector that waits at most 0.1 seconds.

    If nothing is ready by then, it adds a longer timeout to ``skipped`` instead of waiting for it.
    """

    skipped = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0.1 if timeout is None else min(timeout, 0.1))
        if not ready and timeout is not None and timeout > 0.1:
            self.skipped += timeout
        return ready


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock skips long waits in which nothing arrives."""

    def __init__(self) -> None:
        self.selector = _SkippingSelector()
        super().__init__(self.selector)

    def time(self) -> float:
        """Return the simulated time."""
        return super().time() + self.selector.skipped


@every_dialect
@pytest.mark.parametrize(
    ("before", "between", "trouble"),
    [(300, 290, None), (590, 0, None), (610, 0, Trouble.UNREACHABLE), (0, 310, Trouble.UNREACHABLE)],
)
def test_long_waits(
    monkeypatch: pytest.MonkeyPatch, wire: WireExample, before: float, between: float, trouble: Trouble | None
) -> None:
    """By default, a stream may take ten minutes to begin and five to continue. The clock is simulated."""
    loop = SimulatedLoop()
    monkeypatch.setattr(relay_answer, "monotonic", loop.time)

    async def script(_seen: Seen, peer: HttpPeer) -> None:
        await asyncio.sleep(before)
        await peer.send(h11.Response(status_code=200, headers=[("content-type", "text/event-stream")]))
        await peer.send(h11.Data(data=wire.events[0]))
        await asyncio.sleep(between)
        await peer.send(h11.Data(data=b"".join(wire.events[1:])))
        await peer.send(h11.EndOfMessage())

    async def play() -> None:
        async with relayed(script, wire.plan, timeouts=TIMEOUTS) as setting:
            began = loop.time()
            answered = await setting.ask(wire.request("hi"))
            waited = loop.time() - began
            await setting.relay.close()
        assert answered.is_whole is (trouble is None or before > 600)
        assert setting.relay.report().trouble is trouble
        assert before + between - 30 < waited < before + between + 30

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(play())


def failed(code: str) -> bytes:
    """Return the event that ends a failed answer of the Responses API."""
    return event(type="response.failed", response={"status": "failed", "error": {"code": code, "message": KEY}})


def anthropic(kind: str) -> bytes:
    """Return an error event of the Messages API."""
    return event(type="error", error={"type": kind, "message": KEY})


REFUSED, LIMITED, FAILED = Trouble.REFUSED, Trouble.RATE_LIMITED, Trouble.FAILED
REJECTED, DECLINED = Trouble.REJECTED, Trouble.DECLINED
ENDINGS: list[tuple[str, bytes, Trouble | None]] = [
    *(("responses", failed(code), FAILED) for code in ("server_error", "vector_store_timeout", "something_new")),
    ("responses", failed("rate_limit_exceeded"), LIMITED),
    ("responses", failed("data_residency_mismatch"), REFUSED),
    *(
        ("responses", failed(code), REJECTED)
        for code in (
            "invalid_prompt",
            "invalid_image",
            "invalid_image_format",
            "invalid_base64_image",
            "invalid_image_url",
            "invalid_image_mode",
            "image_too_large",
            "image_too_small",
            "image_parse_error",
            "image_file_too_large",
            "image_file_not_found",
            "unsupported_image_media_type",
            "empty_image_file",
            "failed_to_download_image",
        )
    ),
    *(
        ("responses", failed(code), DECLINED)
        for code in ("bio_policy", "cyber_policy", "misalignment_policy_violation", "image_content_policy_violation")
    ),
    ("responses", event(type="error", code="rate_limit_exceeded", message=KEY, param=None), LIMITED),
    ("responses", event(type="error", code=None, message=KEY, param=None), FAILED),
    *(
        ("responses", event(type="response.incomplete", response={"incomplete_details": {"reason": reason}}), trouble)
        for reason, trouble in (("max_output_tokens", None), ("max_messages", None), ("content_filter", DECLINED))
    ),
    *(
        ("messages", anthropic(kind), FAILED)
        for kind in ("api_error", "overloaded_error", "timeout_error", "new_error")
    ),
    *(("messages", anthropic(kind), REFUSED) for kind in ("authentication_error", "billing_error", "permission_error")),
    *(("messages", anthropic(kind), REJECTED) for kind in ("invalid_request_error", "not_found_error")),
    ("messages", anthropic("rate_limit_error"), LIMITED),
    *(
        ("messages", event(type="message_delta", delta={"stop_reason": reason}) + event(type="message_stop"), trouble)
        for reason, trouble in (
            ("end_turn", None),
            ("max_tokens", None),
            ("stop_sequence", None),
            ("tool_use", None),
            ("pause_turn", None),
            ("model_context_window_exceeded", None),
            ("refusal", DECLINED),
        )
    ),
    *(
        ("chat_completions", event(choices=[{"index": 0, "delta": {}, "finish_reason": reason}]), trouble)
        for reason, trouble in (
            ("stop", None),
            ("length", None),
            ("tool_calls", None),
            ("function_call", None),
            ("content_filter", DECLINED),
        )
    ),
    *(
        ("gemini", event(candidates=[{"finishReason": reason, "index": 0}]), None)
        for reason in (
            "STOP",
            "MAX_TOKENS",
            "LANGUAGE",
            "OTHER",
            "MALFORMED_FUNCTION_CALL",
            "UNEXPECTED_TOOL_CALL",
            "TOO_MANY_TOOL_CALLS",
            "MISSING_THOUGHT_SIGNATURE",
            "MALFORMED_RESPONSE",
            "NO_IMAGE",
            "IMAGE_OTHER",
            "CONTINUATION",
        )
    ),
    *(
        ("gemini", event(candidates=[{"finishReason": reason, "index": 0}]), DECLINED)
        for reason in (
            "SAFETY",
            "RECITATION",
            "BLOCKLIST",
            "PROHIBITED_CONTENT",
            "SPII",
            "IMAGE_SAFETY",
            "IMAGE_PROHIBITED_CONTENT",
            "IMAGE_RECITATION",
            "ESCALATION",
            "MODEL_ARMOR",
        )
    ),
    ("gemini", event(candidates=[{"finishReason": "PUP_LIMITED_DISABLED"}]), REFUSED),
    *(
        ("gemini", event(promptFeedback={"blockReason": reason}), DECLINED)
        for reason in ("SAFETY", "OTHER", "BLOCKLIST", "PROHIBITED_CONTENT", "IMAGE_SAFETY", "MODEL_ARMOR", "JAILBREAK")
    ),
    ("gemini", event(error={"code": 503, "message": KEY, "status": "UNAVAILABLE"}), FAILED),
]
"""The endings of answers that the client libraries know: a dialect, the last events, and the trouble to report."""


@pytest.mark.parametrize("dialect", EXAMPLES)
def test_every_ending(dialect: str) -> None:
    """Each error code and stop reason in an answer with status 200 is reported as the right trouble, or as none."""
    wire = EXAMPLES[dialect]
    endings = [(data, trouble) for name, data, trouble in ENDINGS if name == dialect]
    coming = iter(endings)

    async def script(_seen: Seen, peer: HttpPeer) -> None:
        await sent(peer, wire.events[0], next(coming)[0])

    async def play() -> None:
        async with relayed(script, wire.plan, timeouts=TIMEOUTS) as setting:
            for data, trouble in endings:
                answered = await setting.ask(wire.request("hi"))
                assert setting.relay.report().trouble is trouble, data
                assert answered.body == wire.events[0] + data.replace(KEY.encode(), b"<redacted>")

    asyncio.run(play())


def _errors(dialect: str) -> list[tuple[int, Any, Trouble]]:
    if dialect == "gemini":
        named = {
            400: "INVALID_ARGUMENT",
            403: "PERMISSION_DENIED",
            404: "NOT_FOUND",
            429: "RESOURCE_EXHAUSTED",
            500: "INTERNAL",
            503: "UNAVAILABLE",
            504: "DEADLINE_EXCEEDED",
        }
        return [(code, {"code": code, "status": named[code]}, _meaning(code)) for code in named]
    if dialect == "messages":
        spent = {"type": "rate_limit_error", "details": {"error_code": "enforced_spend_limit_reached"}}
        codes = (400, 401, 402, 403, 404, 409, 413, 429, 500, 504, 529)
        return [(429, spent, REFUSED), *((code, {"type": "some_error"}, _meaning(code)) for code in codes)]
    quota = {"type": "insufficient_quota", "code": "insufficient_quota"}
    codes = (400, 401, 403, 404, 409, 413, 422, 429, 500, 502, 503)
    return [(429, quota, REFUSED), *((code, {"type": "some_error", "code": None}, _meaning(code)) for code in codes)]


def _meaning(status: int) -> Trouble:
    if status in (401, 402, 403):
        return REFUSED
    return LIMITED if status == 429 else REJECTED if status < 500 else FAILED


@pytest.mark.parametrize("dialect", EXAMPLES)
def test_every_error_status(dialect: str) -> None:
    """An error of the provider reaches the agent with its status and without the key, and its trouble is reported."""
    wire, errors = EXAMPLES[dialect], _errors(dialect)
    coming = iter(errors)

    async def script(_seen: Seen, peer: HttpPeer) -> None:
        status, error, _ = next(coming)
        body = json.dumps({"error": {**error, "message": f"about {KEY}"}}).encode()
        await respond(peer, status, body, content_type="application/json", retry_after="3")

    async def play() -> None:
        async with relayed(script, wire.plan) as setting:
            for status, _, trouble in errors:
                answered = await setting.ask(wire.request("hi"))
                assert (answered.status, answered.message) == (status, "about <redacted>")
                assert answered.headers["retry-after"] == "3"
                assert setting.relay.report().trouble is trouble

    asyncio.run(play())
