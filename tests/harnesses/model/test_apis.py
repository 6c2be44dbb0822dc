"""How answers of the four APIs are read, including documented forms that the scripted provider does not send."""

from __future__ import annotations

from typing import Any

import pytest

from securebench.harnesses.model.guest.apis import (
    APIS,
    INVALID,
    REFUSED,
    TRUNCATED,
    ChatCompletionsApi,
    ModelApi,
    ToolCall,
)

SETUP = {"model": "m", "is_own": True}


def api(dialect: str, **setup: Any) -> ModelApi:
    """Return a conversation with one message of the user."""
    made = APIS[dialect]({**SETUP, **setup})
    made.say("user", "Hello?")
    return made


def chat(message: dict[str, Any], reason: str = "stop") -> dict[str, Any]:
    """Return an answer in the format of the Chat Completions API."""
    return {"choices": [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": reason}]}


@pytest.mark.parametrize(
    ("dialect", "answer", "stop"),
    [
        ("chat_completions", chat({"content": "Hel"}, "length"), TRUNCATED),
        ("chat_completions", chat({"content": None}, "content_filter"), REFUSED),
        (
            "responses",
            {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}, "output": []},
            TRUNCATED,
        ),
        (
            "responses",
            {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}, "output": []},
            REFUSED,
        ),
        ("messages", {"content": [{"type": "text", "text": "Hel"}], "stop_reason": "max_tokens"}, TRUNCATED),
        ("messages", {"content": [], "stop_reason": "refusal"}, REFUSED),
        (
            "gemini",
            {"candidates": [{"content": {"parts": [{"text": "Hel"}]}, "finishReason": "MAX_TOKENS"}]},
            TRUNCATED,
        ),
        ("gemini", {"candidates": [{"finishReason": "SAFETY"}]}, REFUSED),
        ("gemini", {"promptFeedback": {"blockReason": "OTHER"}}, REFUSED),
    ],
)
def test_an_answer_that_stopped_early(dialect: str, answer: Any, stop: str) -> None:
    """A truncated or refused answer is recognized in the format of each API."""
    assert api(dialect).take(answer).stop == stop


@pytest.mark.parametrize("dialect", APIS)
@pytest.mark.parametrize("answer", [None, [], {}, "x", {"choices": []}, {"output": [{}]}, {"content": [{}]}])
def test_what_is_no_answer(dialect: str, answer: Any) -> None:
    """A value that is not an answer raises one of the errors in ``INVALID``."""
    with pytest.raises(INVALID):
        api(dialect).take(answer)


@pytest.mark.parametrize(
    ("arguments", "command"),
    [('{"command": "ls"}', "ls"), ('{"command": 7}', None), ('{"command": " "}', None), ("[", None), ('"ls"', None)],
)
def test_calls_are_checked(arguments: str, command: str | None) -> None:
    """A call has a command only if its arguments are valid, and its result is sent with the id of the call."""
    call = {"id": "c1", "type": "function", "function": {"name": "shell", "arguments": arguments}}
    made = api("chat_completions")
    assert made.take(chat({"content": None, "tool_calls": [call]}, "tool_calls")).calls == (ToolCall("c1", command),)
    made.results([(ToolCall("c1", command), "done")])
    assert made.items[1:] == [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
    ]


def test_another_tool_is_not_the_shell() -> None:
    """A call of a tool that does not exist has no command, even if its arguments are those of the shell."""
    block = {"type": "tool_use", "id": "t1", "name": "python", "input": {"command": "ls"}}
    assert api("messages").take({"content": [block]}).calls == (ToolCall("t1", None),)


def test_thoughts_are_sent_back_where_they_can_be() -> None:
    """The Messages API gets all thoughts back. The Responses API gets only encrypted thoughts back.

    It would have to look up thoughts that are not encrypted.
    """
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    made = api("messages")
    assert made.take({"content": [thinking, {"type": "text", "text": "Yes."}]}).thought == "Hm."
    assert made.items[1]["content"][0] == thinking
    made = api("responses", effort="high")
    assert made.body(with_shell=False)["include"] == ["reasoning.encrypted_content"]
    stored = {"type": "reasoning", "id": "r1", "summary": [{"type": "summary_text", "text": "Hm."}]}
    kept = {**stored, "encrypted_content": "gAAA"}
    call = {"type": "function_call", "id": "f1", "call_id": "c1", "name": "shell", "arguments": '{"command": "ls"}'}
    reply = made.take({"status": "completed", "output": [stored, kept, call]})
    assert (reply.thought, reply.calls) == ("Hm.\nHm.", (ToolCall("c1", "ls"),))
    assert made.items[1:] == [kept, {key: value for key, value in call.items() if key != "id"}]


MALFORMED = {
    "chat_completions": {"choices": [{"message": {"content": "x", "tool_calls": [{"id": "c1", "function": {}}]}}]},
    "responses": {"status": "completed", "output": [{"type": "message", "content": []}, {"type": "function_call"}]},
    "messages": {"content": [{"type": "tool_use"}]},
    "gemini": {"candidates": [{"content": {"parts": [{"functionCall": {}}]}}]},
}


@pytest.mark.parametrize("dialect", MALFORMED)
def test_a_malformed_answer_is_not_added(dialect: str) -> None:
    """A malformed answer leaves the conversation unchanged: the provider would reject a call without its result."""
    made = api(dialect)
    before = list(made.items)
    with pytest.raises(INVALID):
        made.take(MALFORMED[dialect])
    assert made.items == before


def test_the_limit_has_two_names() -> None:
    """If a server rejects one name of the token limit, the next request uses the other; other errors change nothing."""
    made = ChatCompletionsApi({**SETUP, "max_tokens": 5})
    assert made.body(with_shell=False)["max_completion_tokens"] == 5
    assert not made.adapt(b"the model is gone")
    assert made.adapt(b"Unrecognized request argument supplied: max_completion_tokens")
    assert made.body(with_shell=False)["max_tokens"] == 5
    assert "max_tokens" in ChatCompletionsApi({**SETUP, "is_own": False, "max_tokens": 5}).body(with_shell=False)


def test_text_in_parts() -> None:
    """The content of a message may be a list of parts, as some servers send it."""
    assert api("chat_completions").take(chat({"content": [{"type": "text", "text": "Yes."}]})).text == "Yes."
