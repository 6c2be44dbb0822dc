"""The Responses API of the scripted provider: its events, and the shell tools of different Codex versions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from provider_client import Answer, ask, request_of
from securebench.testing.provider import AnswerUsage, Say, Script, ScriptedProvider, Shell

USAGE = AnswerUsage(input=500, cached=400, output=60, reasoning=7)


def answered(script: Script, **more: Any) -> Answer:
    """Return the first answer of a script over HTTP."""
    with ScriptedProvider(script) as provider:
        return ask(provider.url, "openai", request_of("openai", **more))


def test_words_are_streamed_in_the_order_of_the_api() -> None:
    """A message comes in pieces and then whole. Events are numbered, and the last one repeats the message."""
    answer = answered((Say("x" * 40, USAGE),))
    assert answer.types == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [event["sequence_number"] for event in answer.events] == list(range(10))
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.headers["transfer-encoding"] == "chunked"
    assert answer.events[-1]["response"]["output"] == [answer.events[-2]["item"]]
    assert answer.events[-1]["response"]["output"][0]["content"][0]["text"] == "x" * 40


def test_a_command_is_streamed_in_the_order_of_the_api() -> None:
    """A call starts without arguments. The arguments come in pieces and then whole."""
    answer = answered((Say("So."), Shell("true", USAGE)))
    assert answer.types[8:] == [
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert answer.events[8]["item"]["arguments"] == ""
    assert answer.events[8]["item"]["status"] == "in_progress"
    assert json.loads(answer.events[10]["arguments"]) == {"command": "true"}


def test_ids_are_the_same_within_an_answer_and_new_in_the_next() -> None:
    """All events of an item have the item's id. Two answers and their items all have different ids."""
    answers = [answered((Say("So."), Shell("true"))) for _ in range(2)]
    named = []
    for answer in answers:
        items = answer.events[-1]["response"]["output"]
        for place, item in enumerate(items):
            own_events = [event for event in answer.events if event.get("output_index") == place]
            assert {event["item_id"] for event in own_events if "item_id" in event} == {item["id"]}
        assert {event["response"]["id"] for event in answer.events if "response" in event} == {
            answer.events[0]["response"]["id"]
        }
        named += [answer.events[0]["response"]["id"], *(item["id"] for item in items), items[1]["call_id"]]
    assert len(set(named)) == 8


def test_usage_is_counted_as_the_api_does() -> None:
    """Input tokens include cached tokens, and the total is reported."""
    assert answered((Say("x", USAGE),)).events[-1]["response"]["usage"] == {
        "input_tokens": 500,
        "input_tokens_details": {"cached_tokens": 400},
        "output_tokens": 60,
        "output_tokens_details": {"reasoning_tokens": 7},
        "total_tokens": 560,
    }


@pytest.mark.parametrize(
    ("tool", "kind", "key", "expected"),
    [
        (
            {"type": "function", "name": "exec_command", "parameters": {"properties": {"cmd": {"type": "string"}}}},
            "function_call",
            "arguments",
            '{"cmd": "ls"}',
        ),
        (
            {"type": "function", "name": "shell", "parameters": {"properties": {"command": {"type": "array"}}}},
            "function_call",
            "arguments",
            '{"command": ["/bin/sh", "-c", "ls"]}',
        ),
        (
            {"type": "local_shell"},
            "local_shell_call",
            "action",
            {"type": "exec", "command": ["/bin/sh", "-c", "ls"], "env": {}},
        ),
        (
            {"type": "custom", "name": "exec"},
            "custom_tool_call",
            "input",
            'text(await tools.exec_command({"cmd": "ls"}));',
        ),
    ],
)
def test_whatever_shell_is_offered_is_used(tool: dict[str, Any], kind: str, key: str, expected: object) -> None:
    """A command uses the offered shell tool: a function, the API's ``local_shell``, or a custom tool for programs."""
    item = answered((Shell("ls"),), tools=[{"type": "web_search"}, tool]).events[-1]["response"]["output"][0]
    assert item["type"] == kind
    assert item[key] == expected


def test_a_refusal_is_marked() -> None:
    """A refusal is sent as a refusal, and not as text."""
    answer = answered((Say("No.", refused=True),))
    assert answer.types[4:6] == ["response.refusal.delta", "response.refusal.done"]
    assert answer.events[-1]["response"]["output"][0]["content"] == [{"type": "refusal", "refusal": "No."}]


def test_an_answer_can_come_whole() -> None:
    """A client that does not want a stream gets one object."""
    answer = answered((Shell("ls"),), stream=False)
    assert answer.headers["content-type"] == "application/json"
    assert (answer.value["status"], answer.value["output"][0]["name"]) == ("completed", "shell")


def test_a_prompt_may_be_a_plain_text() -> None:
    """The ``input`` of a request may be a string instead of a list."""
    with ScriptedProvider((Say("x"),)) as provider:
        ask(provider.url, "openai", {"model": "m", "input": "Do it."})
        conversation = provider.requests[0].conversation
    assert conversation is not None
    assert conversation.prompt == "Do it."
