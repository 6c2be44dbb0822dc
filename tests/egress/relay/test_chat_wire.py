"""Chat Completions answers through the relay, in the formats that various servers document."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import h11
import pytest

from relay_setup import BODIES, CHAT, KEY, answering, relayed, respond, streaming
from securebench.egress.model import Provider, Trouble
from securebench.egress.relay import usage

if TYPE_CHECKING:
    from relay_setup import Answered, Script, Seen
    from securebench.egress.http_streams import HttpPeer
    from securebench.egress.model import RelayReport

PLAIN = {name: value for name, value in BODIES[Provider.CHAT_COMPLETIONS].items() if name != "stream_options"}
"""A request for a stream that does not ask for its usage."""


def line(**event: Any) -> bytes:
    """Return one server-sent event with the fields ``event``."""
    return b"data: " + json.dumps(event).encode() + b"\n\n"


def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    """Return an event with one chunk of an answer, in OpenAI's format."""
    begun = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-5.5-2026-01-01"}
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return line(**begun, choices=[choice], **more)


COUNTS = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
USAGE = line(id="chatcmpl-1", object="chat.completion.chunk", model="gpt-5.5-2026-01-01", choices=[], usage=COUNTS)
DONE = b"data: [DONE]\n\n"
CALL = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "shell", "arguments": ""}}
SAID = [
    chunk({"role": "assistant", "content": "", "refusal": None}, usage=None),
    chunk({"content": "Hel"}, usage=None),
    chunk({"tool_calls": [CALL]}, usage=None),
    chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"command":"ls"}'}}]}, usage=None),
    chunk({}, "tool_calls", usage=None),
]
"""The events of a stream with text and a tool call, up to and including the finish reason."""


def exchanged(script: Script, body: Any = None, plan: Any = CHAT) -> tuple[Answered, RelayReport, list[Seen]]:
    """Send one request through a relay. Return the answer, the report and what the provider received."""

    async def play() -> tuple[Answered, RelayReport, list[Seen]]:
        async with relayed(script, plan) as setting:
            answered = await setting.ask(PLAIN if body is None else body)
            await setting.relay.close()
            return answered, setting.relay.report(), setting.seen

    return asyncio.run(play())


def in_pieces(data: bytes, size: int, *, ends: bool = True) -> Script:
    """Return a provider that streams ``data`` in pieces. Unless ``ends``, it then cuts the connection."""

    async def script(_seen: Seen, peer: HttpPeer) -> None:
        await peer.send(h11.Response(status_code=200, headers=[("content-type", "text/event-stream; charset=utf-8")]))
        for start in range(0, len(data), size):
            await peer.send(h11.Data(data=data[start : start + size]))
        if ends:
            await peer.send(h11.EndOfMessage())
        else:
            peer.writer.transport.abort()

    return script


@pytest.mark.parametrize("size", [1, 7, 100, 10_000])
def test_usage_is_counted_and_not_shown(size: int) -> None:
    """The relay requests the usage. An agent that did not request it gets the stream without the usage event."""
    answered, report, (seen,) = exchanged(in_pieces(b"".join([*SAID, USAGE, DONE]), size))
    assert seen.json == {**PLAIN, "stream_options": {"include_usage": True}}
    assert (answered.is_whole, answered.body) == (True, b"".join([*SAID, DONE]))
    assert (report.input_tokens, report.output_tokens, report.trouble) == (100, 20, None)
    assert (report.answered, dict(report.models)) == (1, {"gpt-5.5-2026-01-01": 1})


def test_usage_is_shown_to_an_agent_that_asked() -> None:
    """If the agent requested the usage, nothing is removed from its stream."""
    whole = b"".join([*SAID, USAGE, DONE])
    answered, report, _ = exchanged(streaming(whole), BODIES[Provider.CHAT_COMPLETIONS])
    assert (answered.body, report.input_tokens) == (whole, 100)


@pytest.mark.parametrize(
    "last",
    [
        [chunk({}, "stop", usage=COUNTS), DONE],  # Mistral, DeepSeek
        [
            chunk({}, "stop"),
            line(choices=[{"index": 0, "delta": {"content": ""}, "finish_reason": None}], usage=COUNTS),
        ],
        [chunk({"content": "x"}, usage={**COUNTS, "completion_tokens": 3}), chunk({}, "length"), USAGE, DONE],  # vLLM
        [b": OPENROUTER PROCESSING\n\n", chunk({}, "stop"), USAGE.replace(b"\n", b"\r\n"), DONE],
        [line(choices=[], prompt_filter_results=[]), chunk({}, "stop"), USAGE, DONE],  # Azure
    ],
)
def test_streams_of_other_servers(last: list[bytes]) -> None:
    """Usage is counted if it is in the last chunk, in several chunks or in its own event.

    Comments, CRLF line ends and events without choices do not change the result.
    """
    answered, report, _ = exchanged(streaming(b"".join([*SAID[:2], *last])))
    assert (report.input_tokens, report.output_tokens, report.trouble, report.answered) == (100, 20, None, 1)
    assert b"Hel" in answered.body


@pytest.mark.parametrize("stage", range(len(SAID)))
@pytest.mark.parametrize("ends", [True, False])
def test_cuts_before_the_finish_reason(stage: int, ends: bool) -> None:
    """A stream that ends before its finish reason is the provider's failure. The tokens that arrived are estimated."""
    data = b"".join([*SAID[:stage], SAID[stage][:40]])
    answered, report, _ = exchanged(in_pieces(data, 50, ends=ends))
    assert answered.is_whole is ends
    assert (report.trouble, report.answered) == (Trouble.FAILED, 0)
    assert report.output_tokens >= len(data) // 4


def test_cuts_after_the_finish_reason() -> None:
    """A cut after the finish reason is still a failure. For a complete stream without usage, tokens are estimated."""
    for tail in ([], [USAGE[:30]], [USAGE]):
        _, report, _ = exchanged(in_pieces(b"".join([*SAID, *tail]), 50, ends=False))
        assert report.trouble is Trouble.FAILED
    data = b"".join([*SAID, DONE])
    _, report, _ = exchanged(streaming(data))
    assert (report.trouble, report.output_tokens) == (None, len(data) // 4)
    assert report.input_tokens > 0


@pytest.mark.parametrize(
    ("event", "trouble"),
    [
        (chunk({}, "content_filter"), Trouble.DECLINED),
        (chunk({"refusal": "I cannot"}), Trouble.DECLINED),
        (line(error={"message": "overloaded", "type": "server_error", "code": None}), Trouble.FAILED),
        (line(error={"message": "slow down", "code": "rate_limit_exceeded"}), Trouble.RATE_LIMITED),
        (line(error={"message": "no credit", "code": 402}, choices=[]), Trouble.REFUSED),
        (line(error={"code": 502, "message": "x"}, choices=[{"delta": {}, "finish_reason": "error"}]), Trouble.FAILED),
        (chunk({}, "error"), Trouble.FAILED),
        (line(error="broken"), Trouble.FAILED),
    ],
)
def test_troubles_within_a_stream(event: bytes, trouble: Trouble) -> None:
    """An error, a refusal or a content filter within a stream of status 200 is reported as a trouble, and forwarded."""
    answered, report, _ = exchanged(streaming(b"".join([SAID[0], event, chunk({}, "stop"), DONE])))
    assert report.trouble is trouble
    assert event in answered.body


WHOLE: dict[str, Any] = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "gpt-5.5-2026-01-01",
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "Hello", "refusal": None}, "finish_reason": "stop"}
    ],
    "usage": {**COUNTS, "completion_tokens_details": {"reasoning_tokens": 5}},
}


def test_a_whole_answer() -> None:
    """If the agent requests no stream, its request and the answer are forwarded unchanged."""
    body = {name: value for name, value in PLAIN.items() if name != "stream"}
    data = json.dumps(WHOLE).encode()
    answered, report, (seen,) = exchanged(answering(200, data), body)
    assert (seen.json, answered.body) == (body, data)
    assert (report.input_tokens, report.output_tokens, report.answered) == (100, 20, 1)
    assert dict(report.models) == {"gpt-5.5-2026-01-01": 1}


@pytest.mark.parametrize(
    ("changes", "trouble"),
    [
        ({"choices": []}, Trouble.FAILED),
        ({"choices": None}, Trouble.FAILED),
        ({"error": {"message": "x", "code": 429}}, Trouble.RATE_LIMITED),
        ({"choices": [{"message": {"content": ""}, "finish_reason": "content_filter"}]}, Trouble.DECLINED),
        ({"choices": [{"message": {"refusal": "No."}, "finish_reason": "stop"}]}, Trouble.DECLINED),
        ({"usage": None}, None),
    ],
)
def test_whole_answers_with_trouble(changes: dict[str, Any], trouble: Trouble | None) -> None:
    """An answer of status 200 without choices, with an error or with a refusal is reported as a trouble.

    Missing usage is no trouble: the tokens are estimated.
    """
    data = json.dumps(WHOLE | changes).encode()
    _, report, _ = exchanged(answering(200, data))
    assert report.trouble is trouble
    assert report.output_tokens > 0


def test_lines_of_a_megabyte() -> None:
    """An event of a megabyte is forwarded unchanged, and the usage after it is counted and removed."""
    long = chunk({"content": "x" * 1024 * 1024})
    answered, report, _ = exchanged(in_pieces(b"".join([SAID[0], long, SAID[-1], USAGE, DONE]), 100_000))
    assert long in answered.body
    assert USAGE not in answered.body
    assert (report.input_tokens, report.output_tokens) == (100, 20)


def test_lines_that_are_too_long_are_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that is longer than the limit is forwarded unparsed, even if it has the usage. Later lines are parsed."""
    monkeypatch.setattr(usage, "MAX_EVENT_BYTES", 1000)
    long = line(choices=[], usage={**COUNTS, "prompt_tokens": 999}, padding="x" * 200_000)
    answered, report, _ = exchanged(in_pieces(b"".join([SAID[0], long, SAID[-1], USAGE, DONE]), 10_000))
    assert answered.body == b"".join([SAID[0], long, SAID[-1], DONE])
    assert (report.input_tokens, report.trouble) == (100, None)


def test_the_key_is_removed_around_a_removed_event() -> None:
    """The key is redacted directly before and after a usage event that the relay removes."""
    echo = chunk({"content": KEY})
    answered, _, _ = exchanged(in_pieces(b"".join([echo, USAGE, KEY.encode() + b"\n", chunk({}, "stop"), DONE]), 3))
    assert KEY.encode() not in answered.body
    assert answered.body.count(b"<redacted>") == 2


@pytest.mark.parametrize("status", [401, 404, 429, 500])
def test_errors_reach_the_agent(status: int) -> None:
    """An error response reaches the agent with its status, its ``Retry-After`` and its body without the key."""
    error = json.dumps({"error": {"message": f"{KEY} is wrong", "code": None}}).encode()

    async def script(_seen: Seen, peer: HttpPeer) -> None:
        await respond(peer, status, error, content_type="application/json", retry_after="7")

    answered, report, _ = exchanged(script)
    assert (answered.status, answered.message) == (status, "<redacted> is wrong")
    assert answered.headers["retry-after"] == "7"
    assert report.retry_after == pytest.approx(7, abs=1)


def test_the_list_of_models_needs_no_provider() -> None:
    """The relay answers the request for the list of models itself, and does not count it."""

    async def play() -> None:
        async with relayed(plan=CHAT) as setting:
            answered = await setting.ask(b"", "/v1/models", method="GET")
            assert [model["id"] for model in json.loads(answered.body)["data"]] == [CHAT.model]
            assert (setting.seen, setting.relay.report().requests) == ([], 0)

    asyncio.run(play())
