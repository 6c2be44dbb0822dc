"""The Chat Completions API of the scripted provider: answers as a stream of chunks, and answers as one object."""

from __future__ import annotations

import json
from typing import Any

import pytest

from provider_client import Answer, ask, request_of
from securebench.testing.provider import AnswerUsage, Fail, Say, Script, ScriptedProvider, Shell

API = "chat_completions"
USAGE = AnswerUsage(input=500, cached=400, output=60, reasoning=7)
COUNTS = {
    "prompt_tokens": 500,
    "completion_tokens": 60,
    "total_tokens": 560,
    "prompt_tokens_details": {"cached_tokens": 400},
    "completion_tokens_details": {"reasoning_tokens": 7},
}


def answered(script: Script, fault: Fail | None = None, **more: Any) -> Answer:
    """Return the first answer of a script over HTTP."""
    with ScriptedProvider(script, fault=fault) as provider:
        return ask(provider.url, API, request_of(API, **more))


def test_a_stream_has_the_order_of_the_api() -> None:
    """A stream has the role, the text and the call in pieces, the finish reason, the usage, and the end mark."""
    answer = answered((Say("x" * 40), Shell("true", USAGE)))
    deltas = [choice["delta"] for event in answer.events for choice in event["choices"]]
    assert [next(iter(delta), None) for delta in deltas] == [
        "role",
        "content",
        "content",
        "tool_calls",
        "tool_calls",
        None,
    ]
    assert [choice["finish_reason"] for event in answer.events for choice in event["choices"]] == [None] * 5 + [
        "tool_calls"
    ]
    assert [event["usage"] for event in answer.events] == [None] * 6 + [COUNTS]
    assert answer.events[-1]["choices"] == []
    assert answer.body.endswith(b"\n\ndata: [DONE]\n\n")
    assert {event["object"] for event in answer.events} == {"chat.completion.chunk"}
    assert len({event["id"] for event in answer.events}) == 1
    assert json.loads(deltas[4]["tool_calls"][0]["function"]["arguments"]) == {"command": "true"}


@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}])
def test_a_stream_has_no_usage_unless_asked(options: object) -> None:
    """A stream reports usage only if the client asks for it, as with the real API."""
    answer = answered((Say("x", USAGE),), stream_options=options)
    assert all("usage" not in event and event["choices"] for event in answer.events)


def test_a_whole_answer() -> None:
    """Without a stream, the answer is one object with the message, the finish reason and the usage."""
    answer = answered((Say("So."), Shell("ls", USAGE)), stream=False)
    (choice,) = answer.value["choices"]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("tool_calls", "So.")
    assert choice["message"]["tool_calls"][0]["function"]["name"] == "shell"
    assert answer.value["usage"] == COUNTS


def test_a_refusal_is_marked() -> None:
    """A refusal is in the field ``refusal`` of the message, which has no content."""
    answer = answered((Say("No.", refused=True),), stream=False)
    message = answer.value["choices"][0]["message"]
    assert (message["content"], message["refusal"]) == (None, "No.")


def test_an_error_within_a_stream() -> None:
    """A stream that fails has status 200 and ends with an error object."""
    answer = answered((Say("x" * 90),), Fail(500, in_stream=True))
    assert answer.status == 200
    assert "error" in answer.events[-1]
