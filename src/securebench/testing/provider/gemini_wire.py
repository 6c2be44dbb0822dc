"""The subset of Google's Gemini API that clients with tools use."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from securebench.testing.provider.conversation import ModelConversation, Tool, objects, shell_function, text_of
from securebench.testing.provider.reply import Reply, new_id, parts, stream, whole
from securebench.testing.provider.steps import Say

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from securebench.testing.provider.steps import Act, AnswerUsage, ModelAnswer

_ERRORS: Final = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_TARGET: Final = re.compile(r"/models/([^/?]+):(generateContent|streamGenerateContent)(?:\?|\Z)")

Event = dict[str, Any]


def read(body: Mapping[str, Any]) -> ModelConversation:
    """Return the conversation in a request's body. The values in the body may be anything.

    The model and the streaming mode are not in the body but in the path: :func:`addressed` adds them.
    """
    contents = objects(body.get("contents"))
    answered = [place for place, content in enumerate(contents) if content.get("role") == "model"]
    first_turn = contents[: answered[0]] if answered else contents
    results = [piece.get("functionResponse") for content in contents for piece in objects(content.get("parts"))]
    return ModelConversation(
        model="",
        prompt="\n".join(text_of(content.get("parts")) for content in first_turn),
        results=tuple(_result(result) for result in results if isinstance(result, dict)),
        shell=shell_function([_tool(one) for tool in objects(body.get("tools")) for one in _declared(tool)]),
        streams=False,
        questions=tuple(filter(None, (text_of(one.get("parts")) for one in contents if one.get("role") == "user"))),
    )


def addressed(conversation: ModelConversation, path: str) -> ModelConversation | None:
    """Return the conversation with the path's model and streaming mode; ``None`` if the path requests no answer."""
    if (found := _TARGET.search(path)) is None:
        return None
    return replace(conversation, model=found[1], streams=found[2].startswith("stream"))


def _declared(tool: Mapping[str, Any]) -> list[Event]:
    return objects(tool.get("functionDeclarations"))


def _tool(function: Mapping[str, Any]) -> Tool:
    schema = function.get("parametersJsonSchema") or function.get("parameters")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return Tool("function", str(function.get("name")), properties if isinstance(properties, dict) else {})


def _result(result: Mapping[str, Any]) -> str:
    response = result.get("response")
    output = response.get("output", response) if isinstance(response, dict) else response
    return output if isinstance(output, str) else json.dumps(output)


def render(answer: ModelAnswer, conversation: ModelConversation) -> Reply:
    """Return ``answer`` in the form of the API: a stream of objects, or one object if the client wants no stream."""
    meta = {"modelVersion": conversation.model, "responseId": new_id("")}
    refused = any(isinstance(act, Say) and act.refused for act in answer.acts)
    pieces = [] if refused else [_piece(act, conversation.shell) for act in answer.acts]
    usage = _usage(answer.usage)
    reason = "SAFETY" if refused else "STOP"
    if not conversation.streams:
        return whole(200, {**meta, "candidates": [_candidate(pieces, reason)], "usageMetadata": usage})
    events = [{"candidates": [_candidate([piece])]} for whole_piece in pieces for piece in _split(whole_piece)]
    ended = {"candidates": [_candidate([] if refused else [{"text": ""}], reason)]}
    begun = {name: usage[name] for name in ("promptTokenCount", "totalTokenCount")}
    return stream(
        [*({**event, "usageMetadata": begun, **meta} for event in events), {**ended, "usageMetadata": usage, **meta}]
    )


def _candidate(pieces: list[Event], reason: str | None = None) -> Event:
    content = {"content": {"parts": pieces, "role": "model"}} if pieces else {}
    return {**content, **({"finishReason": reason} if reason else {}), "index": 0}


def _usage(usage: AnswerUsage) -> Event:
    """Return ``usage`` as a ``usageMetadata`` object of the Gemini API."""
    return {
        "promptTokenCount": usage.input,
        "cachedContentTokenCount": usage.cached,
        "candidatesTokenCount": usage.output - usage.reasoning,  # the API counts thoughts separately
        "thoughtsTokenCount": usage.reasoning,
        "totalTokenCount": usage.input + usage.output,
    }


def _piece(act: Act, shell: Tool | None) -> Event:
    if isinstance(act, Say):
        return {"text": act.text}
    if shell is None:
        raise ValueError("cannot send a command to a client without a shell tool")
    return {"functionCall": {"name": shell.name, "args": shell.arguments(act.command)}}


def _split(piece: Event) -> Iterator[Event]:
    """Yield the pieces of a text. A call is not split."""
    if "text" not in piece:
        yield piece
        return
    yield from ({"text": text} for text in parts(piece["text"]))


def error(status: int, message: str) -> Event:
    """Return the body of an error response."""
    return {"error": {"code": status, "message": message, "status": _ERRORS.get(status, "INTERNAL")}}


def error_event(status: int, message: str) -> Event:
    """Return the event that aborts a streamed answer."""
    return error(status, message)


def models(names: list[str]) -> Event:
    """Return the list of models."""
    methods = ["generateContent", "countTokens"]
    return {"models": [{"name": f"models/{name}", "supportedGenerationMethods": methods} for name in names]}
