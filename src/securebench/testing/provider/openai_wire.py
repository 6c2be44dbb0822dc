"""The subset of the OpenAI Responses API that clients with tools use."""

from __future__ import annotations

import json
import time
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
from securebench.testing.provider.steps import Say

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from securebench.testing.provider.steps import Act, AnswerUsage, ModelAnswer

_RESULTS: Final = {
    "function_call_output",
    "custom_tool_call_output",
    "local_shell_call_output",
    "shell_call_output",
}
_ERRORS: Final = {
    400: "invalid_request_error",
    401: "invalid_api_key",
    403: "permission_error",
    404: "model_not_found",
    429: "rate_limit_exceeded",
}
_STREAMED: Final = {
    "function_call": ("response.function_call_arguments", "arguments"),
    "custom_tool_call": ("response.custom_tool_call_input", "input"),
}
"""Types of items whose arguments are streamed, each with the prefix of its events and its field for arguments."""

Event = dict[str, Any]


def read(body: Mapping[str, Any]) -> ModelConversation:
    """Return the conversation in a request's body. The values in the body may be anything."""
    given = body.get("input")
    items = objects(given) if not isinstance(given, str) else [{"role": "user", "content": given}]
    answered = [place for place, item in enumerate(items) if item.get("role") != "user" and _is_the_models(item)]
    first_turn = items[: answered[0]] if answered else items
    return ModelConversation(
        model=str(body.get("model", "")),
        prompt="\n".join(user_texts(first_turn)),
        results=tuple(text_of(item.get("output")) for item in items if str(item.get("type")) in _RESULTS),
        shell=_shell(objects(body.get("tools"))),
        streams=body.get("stream") is True,
        questions=user_texts(items),
    )


def _is_the_models(item: Mapping[str, Any]) -> bool:
    return item.get("role") == "assistant" or str(item.get("type", "message")) != "message"


def _shell(tools: list[dict[str, Any]]) -> Tool | None:
    """Return the tool that runs commands: a shell function, or else a ``local_shell`` or custom ``exec`` tool."""
    functions = [
        Tool("function", str(tool.get("name")), _properties(tool)) for tool in tools if tool.get("type") == "function"
    ]
    if found := shell_function(functions):
        return found
    for tool in tools:
        if tool.get("type") == "local_shell" or (tool.get("type"), tool.get("name")) == ("custom", "exec"):
            return Tool(str(tool["type"]), str(tool.get("name", "")), {})
    return None


def _properties(tool: Mapping[str, Any]) -> dict[str, Any]:
    schema = tool.get("parameters")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return properties if isinstance(properties, dict) else {}


def render(answer: ModelAnswer, conversation: ModelConversation) -> Reply:
    """Return ``answer`` in the form of the API: a stream of events, or one object if the client wants no stream."""
    opened: Event = {
        "id": new_id("resp_"),
        "object": "response",
        "created_at": int(time.time()),
        "model": conversation.model,
        "status": "in_progress",
        "output": [],
    }
    acts = [(act, _item(act, conversation.shell)) for act in answer.acts]
    output = [item for _, item in acts]
    ended = {**opened, "status": "completed", "output": output, "usage": _usage(answer.usage)}
    if not conversation.streams:
        return whole(200, ended)
    events = [
        {"type": "response.created", "response": opened},
        {"type": "response.in_progress", "response": opened},
        *(event for place, (act, item) in enumerate(acts) for event in _item_events(place, act, item)),
        {"type": "response.completed", "response": ended},
    ]
    return stream({**event, "sequence_number": number} for number, event in enumerate(events))


def _usage(usage: AnswerUsage) -> Event:
    return {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cached},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.input + usage.output,
    }


def _item(act: Act, shell: Tool | None) -> Event:
    """Return an act as an item of an answer's output."""
    if isinstance(act, Say):
        return {**_named("message", "msg_"), "role": "assistant", "content": [_part(act, act.text)]}
    if shell is None:
        raise ValueError("cannot send a command to a client without a shell tool")
    if shell.kind == "local_shell":
        action = {"type": "exec", "command": ["/bin/sh", "-c", act.command], "env": {}}
        return {**_named("local_shell_call", "lsh_"), "call_id": new_id("call_"), "action": action}
    called = {"call_id": new_id("call_"), "name": shell.name}
    if shell.kind == "custom":
        program = f"text(await tools.exec_command({json.dumps({'cmd': act.command})}));"
        return {**_named("custom_tool_call", "ctc_"), **called, "input": program}
    return {**_named("function_call", "fc_"), **called, "arguments": json.dumps(shell.arguments(act.command))}


def _named(kind: str, prefix: str) -> Event:
    return {"type": kind, "id": new_id(prefix), "status": "completed"}


def _part(say: Say, text: str) -> Event:
    if say.refused:
        return {"type": "refusal", "refusal": text}
    return {"type": "output_text", "text": text, "annotations": []}


def _item_events(place: int, act: Act, item: Event) -> Iterator[Event]:
    """Yield the events of one item: its start, its text or arguments piece by piece, and the complete item."""
    at = {"item_id": item["id"], "output_index": place}
    yield {"type": "response.output_item.added", "output_index": place, "item": _begun(item)}
    if isinstance(act, Say):
        yield from _saying(act, {**at, "content_index": 0})
    elif (field := _STREAMED.get(item["type"])) is not None:
        event, key = field
        for piece in parts(item[key]):
            yield {"type": f"{event}.delta", **at, "delta": piece}
        yield {"type": f"{event}.done", **at, key: item[key]}
    yield {"type": "response.output_item.done", "output_index": place, "item": item}


def _begun(item: Event) -> Event:
    """Return an item in the state in which it is announced: in progress, without content."""
    empty: Event = {key: type(item[key])() for key in ("content", "arguments", "input") if key in item}
    return {**item, **empty, "status": "in_progress"}


def _saying(say: Say, at: Event) -> Iterator[Event]:
    event, key = ("response.refusal", "refusal") if say.refused else ("response.output_text", "text")
    yield {"type": "response.content_part.added", **at, "part": _part(say, "")}
    for piece in parts(say.text):
        yield {"type": f"{event}.delta", **at, "delta": piece}
    yield {"type": f"{event}.done", **at, key: say.text}
    yield {"type": "response.content_part.done", **at, "part": _part(say, say.text)}


def error(status: int, message: str) -> Event:
    """Return the body of an error response."""
    kind = _ERRORS.get(status, "server_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": kind}}


def error_event(status: int, message: str) -> Event:
    """Return the event that aborts a streamed answer."""
    failed = {"id": new_id("resp_"), "object": "response", "status": "failed", "output": []}
    code = {"code": _ERRORS.get(status, "server_error"), "message": message}
    return {"type": "response.failed", "response": {**failed, "error": code}}


def models(names: list[str]) -> Event:
    """Return the list of models."""
    described = [{"id": name, "object": "model", "created": 0, "owned_by": "scripted"} for name in names]
    return {"object": "list", "data": described, "models": []}
