"""The Messages API of the scripted provider: answers as a stream of events, and answers as one object."""

from __future__ import annotations

from typing import Any

from provider_client import Answer, ask, request_of
from securebench.testing.provider import AnswerUsage, Say, Script, ScriptedProvider, Shell

USAGE = AnswerUsage(input=500, cached=400, output=60, reasoning=7)
COUNTED = {
    "input_tokens": 100,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 400,
    "output_tokens": 60,
    "service_tier": "standard",
}


def answered(script: Script, **more: Any) -> Answer:
    """Return the first answer of a script over HTTP."""
    with ScriptedProvider(script) as provider:
        return ask(provider.url, "anthropic", request_of("anthropic", **more))


def test_words_and_a_command_are_streamed_in_the_order_of_the_api() -> None:
    """A stream has the start of the message, each block in pieces, the stop reason, and the end of the message."""
    answer = answered((Say("x" * 40), Shell("true", USAGE)))
    assert answer.types == [
        "message_start",
        "ping",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert [event["index"] for event in answer.events if "index" in event] == [0, 0, 0, 0, 1, 1, 1]
    assert answer.events[2]["content_block"] == {"type": "text", "text": ""}
    assert answer.events[6]["content_block"]["input"] == {}
    assert answer.events[6]["content_block"]["name"] == "Bash"
    assert answer.headers["transfer-encoding"] == "chunked"


def test_usage_is_counted_as_the_api_does() -> None:
    """Input tokens do not include cached tokens. Only the end of the stream has the final number of output tokens."""
    answer = answered((Say("x", USAGE),))
    assert answer.events[0]["message"]["usage"] == {**COUNTED, "output_tokens": 1}
    assert answer.events[-2]["usage"] == COUNTED


def test_an_answer_says_why_it_ended() -> None:
    """The stop reason is ``tool_use`` for a command, ``end_turn`` for text and ``refusal`` for a refusal."""
    reasons = [
        answered((act,)).events[-2]["delta"]["stop_reason"] for act in (Shell("x"), Say("x"), Say("No.", refused=True))
    ]
    assert reasons == ["tool_use", "end_turn", "refusal"]


def test_ids_are_new_in_each_answer() -> None:
    """All ids of messages and tool uses in two answers are different."""
    answers = [answered((Shell("true"),)) for _ in range(2)]
    messages = {answer.events[0]["message"]["id"] for answer in answers}
    assert len(messages | {answer.events[2]["content_block"]["id"] for answer in answers}) == 4


def test_an_answer_can_come_whole() -> None:
    """A client that does not want a stream gets one object."""
    answer = answered((Say("So."), Shell("ls", USAGE)), stream=False)
    assert answer.headers["content-type"] == "application/json"
    assert [block["type"] for block in answer.value["content"]] == ["text", "tool_use"]
    assert answer.value["content"][1]["input"] == {"command": "ls"}
    assert (answer.value["stop_reason"], answer.value["usage"]) == ("tool_use", COUNTED)
