"""The subset of the Anthropic Messages API that clients with tools use."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from securebench.testing.provider.conversation import (
    ModelConversation,
    Tool,
    objects,
    shell_function,
    text_of,
    user_texts,
)
from securebench.testing.provider.reply import Reply, new_id, parts, stream, whole
from securebench.testing.provider.steps import Say, Shell

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from securebench.testing.provider.steps import Act, AnswerUsage, ModelAnswer

_ERRORS: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}

Event = dict[str, Any]


def read(body: Mapping[str, Any]) -> ModelConversation:
    """Return the conversation in a request's body. The values in the body may be anything."""
    messages = objects(body.get("messages"))
    answered = [place for place, message in enumerate(messages) if message.get("role") == "assistant"]
    first_turn = messages[: answered[0]] if answered else messages
    blocks = [block for message in messages for block in objects(message.get("content"))]
    return ModelConversation(
        model=str(body.get("model", "")),
        prompt="\n".join(user_texts(first_turn)),
        results=tuple(text_of(block.get("content")) for block in blocks if block.get("type") == "tool_result"),
        shell=shell_function([Tool("tool_use", str(tool.get("name")), _properties(tool)) for tool in _tools(body)]),
        streams=body.get("stream") is True,
        questions=user_texts(messages),
    )


def _tools(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    return objects(body.get("tools"))


def _properties(tool: Mapping[str, Any]) -> dict[str, Any]:
    schema = tool.get("input_schema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return properties if isinstance(properties, dict) else {}


def render(answer: ModelAnswer, conversation: ModelConversation) -> Reply:
    """Return ``answer`` in the form of the API: a stream of events, or one object if the client wants no stream."""
    blocks = [_block(act, conversation.shell) for act in answer.acts]
    opened: Event = {
        "id": new_id("msg_"),
        "type": "message",
        "role": "assistant",
        "model": conversation.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {**_usage(answer.usage), "output_tokens": 1},
    }
    ended = {"stop_reason": _stop_reason(answer.acts[-1]), "stop_sequence": None}
    if not conversation.streams:
        return whole(200, {**opened, **ended, "content": blocks, "usage": _usage(answer.usage)})
    return stream(
        [
            {"type": "message_start", "message": opened},
            {"type": "ping"},
            *(event for place, block in enumerate(blocks) for event in _block_events(place, block)),
            {"type": "message_delta", "delta": ended, "usage": _usage(answer.usage)},
            {"type": "message_stop"},
        ]
    )


def _usage(usage: AnswerUsage) -> Event:
    """Return the token counts as this API reports them: ``input_tokens`` does not include cached tokens."""
    return {
        "input_tokens": usage.input - usage.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.output,
        "service_tier": "standard",
    }


def _stop_reason(act: Act) -> str:
    if isinstance(act, Shell):
        return "tool_use"
    return "refusal" if act.refused else "end_turn"


def _block(act: Act, shell: Tool | None) -> Event:
    """Return an act as a content block of a message."""
    if isinstance(act, Say):
        return {"type": "text", "text": act.text}
    if shell is None:
        raise ValueError("cannot send a command to a client without a shell tool")
    return {"type": "tool_use", "id": new_id("toolu_"), "name": shell.name, "input": shell.arguments(act.command)}


def _block_events(place: int, block: Event) -> Iterator[Event]:
    """Yield the events of one block: its start, its content piece by piece, and its end."""
    is_text = block["type"] == "text"
    begun = {**block, "text": ""} if is_text else {**block, "input": {}}
    kind, key = ("text_delta", "text") if is_text else ("input_json_delta", "partial_json")
    yield {"type": "content_block_start", "index": place, "content_block": begun}
    for piece in parts(block["text"] if is_text else json.dumps(block["input"])):
        yield {"type": "content_block_delta", "index": place, "delta": {"type": kind, key: piece}}
    yield {"type": "content_block_stop", "index": place}


def error(status: int, message: str) -> Event:
    """Return the body of an error response."""
    kind = _ERRORS.get(status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": new_id("req_")}


def error_event(status: int, message: str) -> Event:
    """Return the event that aborts a streamed answer."""
    return error(status, message)


def models(names: list[str]) -> Event:
    """Return the list of models."""
    described = [
        {"type": "model", "id": name, "display_name": name, "created_at": "2026-01-01T00:00:00Z"} for name in names
    ]
    return {"data": described, "has_more": False, "first_id": names[0], "last_id": names[-1]}
