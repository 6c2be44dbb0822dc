"""The subset of the Chat Completions API that clients with tools use."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from securebench.testing.provider import openai_wire
from securebench.testing.provider.conversation import (
    ModelConversation,
    Tool,
    objects,
    shell_function,
    text_of,
    user_texts,
)
from securebench.testing.provider.reply import Reply, new_id, parts, stream, whole
from securebench.testing.provider.steps import Say

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from securebench.testing.provider.steps import Act, AnswerUsage, ModelAnswer

_DONE: Final = b"data: [DONE]\n\n"
_SYSTEM: Final = {"system", "developer"}

Event = dict[str, Any]

error = openai_wire.error
models = openai_wire.models


def read(body: Mapping[str, Any]) -> ModelConversation:
    """Return the conversation in a request's body. The values in the body may be anything."""
    messages = [message for message in objects(body.get("messages")) if str(message.get("role")) not in _SYSTEM]
    answered = [place for place, message in enumerate(messages) if message.get("role") == "assistant"]
    first_turn = messages[: answered[0]] if answered else messages
    options = body.get("stream_options")
    return ModelConversation(
        model=str(body.get("model", "")),
        prompt="\n".join(user_texts(first_turn)),
        results=tuple(text_of(message.get("content")) for message in messages if message.get("role") == "tool"),
        shell=shell_function([_tool(tool.get("function")) for tool in objects(body.get("tools"))]),
        streams=body.get("stream") is True,
        questions=user_texts(messages),
        streams_usage=isinstance(options, dict) and options.get("include_usage") is True,
    )


def _tool(function: object) -> Tool:
    given = function if isinstance(function, dict) else {}
    schema = given.get("parameters")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return Tool("function", str(given.get("name")), properties if isinstance(properties, dict) else {})


def render(answer: ModelAnswer, conversation: ModelConversation) -> Reply:
    """Return ``answer`` in the form of the API: a stream of chunks, or one object if the client wants no stream."""
    begun = {"id": new_id("chatcmpl-"), "created": int(time.time()), "model": conversation.model}
    message = _message(answer, conversation.shell)
    reason = "tool_calls" if message.get("tool_calls") else "stop"
    usage = _usage(answer.usage)
    if not conversation.streams:
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
        return whole(200, {**begun, "object": "chat.completion", "choices": [choice], "usage": usage})
    deltas: list[tuple[Event, str | None]] = [(delta, None) for delta in _deltas(message)]
    chunk = {**begun, "object": "chat.completion.chunk", **({"usage": None} if conversation.streams_usage else {})}
    events = [
        {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
        for delta, finish in [*deltas, ({}, reason)]
    ]
    if conversation.streams_usage:
        events.append({**chunk, "choices": [], "usage": usage})
    reply = stream(events)
    return replace(reply, pieces=(*reply.pieces, _DONE))


def _usage(usage: AnswerUsage) -> Event:
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


def _message(answer: ModelAnswer, shell: Tool | None) -> Event:
    """Return an answer as one message: its text or refusal, and its tool calls, if it has any."""
    says = [act for act in answer.acts if isinstance(act, Say)]
    text = "\n".join(act.text for act in says) if says else None
    refused = any(act.refused for act in says)
    calls = [_call(act, shell) for act in answer.acts if not isinstance(act, Say)]
    return {
        "role": "assistant",
        "content": None if refused else text,
        "refusal": text if refused else None,
        **({"tool_calls": calls} if calls else {}),
    }


def _call(act: Act, shell: Tool | None) -> Event:
    if shell is None or isinstance(act, Say):
        raise ValueError("cannot send a command to a client without a shell tool")
    called = {"name": shell.name, "arguments": json.dumps(shell.arguments(act.command))}
    return {"id": new_id("call_"), "type": "function", "function": called}


def _deltas(message: Event) -> Iterator[Event]:
    """Yield the pieces of a message: its role, its text piece by piece, and its calls with their arguments."""
    yield {"role": "assistant", "content": "", "refusal": None}
    for key in ("content", "refusal"):
        if message[key] is not None:
            yield from ({key: piece} for piece in parts(message[key]))
    for place, call in enumerate(message.get("tool_calls", [])):
        function = call["function"]
        yield {"tool_calls": [{"index": place, **call, "function": {**function, "arguments": ""}}]}
        for piece in parts(function["arguments"]):
            yield {"tool_calls": [{"index": place, "function": {"arguments": piece}}]}


def error_event(status: int, message: str) -> Event:
    """Return the event that aborts a streamed answer."""
    return error(status, message)
