"""A client of all provider APIs. It sends the requests of a test and parses the answers."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping, Sequence

KEY: Final = "sk-canary-0123456789"
APIS: Final = ("openai", "anthropic", "chat_completions", "gemini")

_HEADERS: Final = {
    "openai": {"Authorization": f"Bearer {KEY}"},
    "chat_completions": {"Authorization": f"Bearer {KEY}"},
    "anthropic": {"X-Api-Key": KEY, "Anthropic-Version": "2023-06-01"},
    "gemini": {"X-Goog-Api-Key": KEY},
}
_SCHEMA: Final = {"type": "object", "properties": {"command": {"type": "string"}}}
TOOLS: Final[dict[str, list[dict[str, Any]]]] = {
    "openai": [{"type": "function", "name": "shell", "parameters": _SCHEMA}],
    "chat_completions": [{"type": "function", "function": {"name": "shell", "parameters": _SCHEMA}}],
    "anthropic": [{"name": "Read"}, {"name": "Bash", "input_schema": _SCHEMA}],
    "gemini": [{"functionDeclarations": [{"name": "run_shell_command", "parametersJsonSchema": _SCHEMA}]}],
}
PATHS: Final = {
    "openai": "/v1/responses",
    "anthropic": "/v1/messages",
    "chat_completions": "/v1/chat/completions",
    "gemini": "/v1beta/models/m:streamGenerateContent?alt=sse",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """A response. The names of ``headers`` are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def value(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def events(self) -> list[dict[str, Any]]:
        """The body as server-sent events. Fails unless each event is named after the ``type`` in its data, if any."""
        found = []
        for block in self.body.decode().removesuffix("\n\n").removesuffix("data: [DONE]").rstrip().split("\n\n"):
            *name, data = block.split("\n")
            found.append(json.loads(data.removeprefix("data: ")))
            assert name == ([f"event: {found[-1]['type']}"] if "type" in found[-1] else [])
        return found

    @property
    def types(self) -> list[str]:
        """The types of the events."""
        return [event["type"] for event in self.events]


def request_of(api: str, prompt: str = "Do it.", results: Sequence[str] = (), **more: Any) -> dict[str, Any]:
    """Return the request that continues a conversation in which the commands had the outputs ``results``."""
    if api == "openai":
        items: list[dict[str, Any]] = [{"role": "user", "content": [{"type": "input_text", "text": prompt}]}]
        for number, result in enumerate(results):
            items.append({"type": "function_call", "call_id": f"c{number}", "name": "shell", "arguments": "{}"})
            items.append({"type": "function_call_output", "call_id": f"c{number}", "output": result})
        return {"model": "m", "input": items, "tools": TOOLS[api], "stream": True, **more}
    if api == "gemini":
        return {"contents": _contents(prompt, results), "tools": TOOLS[api], **more}
    messages: list[dict[str, Any]] = [{"role": "user", "content": prompt}]
    if api == "chat_completions":
        for number, result in enumerate(results):
            call = {"id": f"c{number}", "type": "function", "function": {"name": "shell", "arguments": "{}"}}
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
            messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": result})
        counted = {"stream_options": {"include_usage": True}}
        return {"model": "m", "messages": messages, "tools": TOOLS[api], "stream": True, **counted, **more}
    for number, result in enumerate(results):
        used = {"type": "tool_use", "id": f"c{number}", "name": "Bash", "input": {}}
        messages.append({"role": "assistant", "content": [used]})
        given = {"type": "tool_result", "tool_use_id": f"c{number}", "content": result}
        messages.append({"role": "user", "content": [given]})
    return {"model": "m", "max_tokens": 9, "messages": messages, "tools": TOOLS[api], "stream": True, **more}


def _contents(prompt: str, results: Sequence[str]) -> list[dict[str, Any]]:
    contents: list[dict[str, Any]] = [{"role": "user", "parts": [{"text": prompt}]}]
    for result in results:
        contents.append({"role": "model", "parts": [{"functionCall": {"name": "run_shell_command", "args": {}}}]})
        answer = {"name": "run_shell_command", "response": {"output": result}}
        contents.append({"role": "user", "parts": [{"functionResponse": answer}]})
    return contents


def ask(
    url: str,
    api: str,
    body: object,
    *,
    method: str = "POST",
    path: str | None = None,
    headers: Mapping[str, str] | None = None,
    context: ssl.SSLContext | None = None,
) -> Answer:
    """Send ``body`` to ``path``, by default the API's path for answers. A body of bytes is sent unchanged."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    if context is None:
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=10)
    else:
        connection = http.client.HTTPSConnection(parts.hostname, parts.port, timeout=10, context=context)
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        connection.request(method, path or PATHS[api], sent, {**_HEADERS[api], **(headers or {})})
        response = connection.getresponse()
        return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, response.read())
    finally:
        connection.close()


def text_of(api: str, answer: Answer) -> str:
    """Return the text of a streamed answer, joined from its pieces."""
    if api == "openai":
        return "".join(event["delta"] for event in answer.events if event["type"] == "response.output_text.delta")
    if api == "chat_completions":
        return "".join(delta.get("content") or "" for delta in _deltas(answer))
    if api == "gemini":
        return "".join(piece.get("text", "") for piece in _parts(answer))
    return "".join(event["delta"].get("text", "") for event in answer.events if event["type"] == "content_block_delta")


def _deltas(answer: Answer) -> list[dict[str, Any]]:
    return [choice["delta"] for event in answer.events for choice in event["choices"]]


def _parts(answer: Answer) -> list[dict[str, Any]]:
    candidates = [candidate for event in answer.events for candidate in event["candidates"]]
    return [piece for candidate in candidates for piece in candidate.get("content", {}).get("parts", [])]


def commanded(api: str, answer: Answer) -> str | None:
    """Return the command that a streamed answer asks to run, joined from its pieces; ``None`` without a command."""
    if api == "gemini":
        calls = [piece["functionCall"] for piece in _parts(answer) if "functionCall" in piece]
        return calls[0]["args"]["command"] if calls else None
    if api == "openai":
        kind, key = "response.function_call_arguments.delta", "delta"
        pieces = [event[key] for event in answer.events if event["type"] == kind]
    elif api == "chat_completions":
        calls = [call for delta in _deltas(answer) for call in delta.get("tool_calls", [])]
        pieces = [call["function"]["arguments"] for call in calls]
    else:
        deltas = [event["delta"] for event in answer.events if event["type"] == "content_block_delta"]
        pieces = [delta["partial_json"] for delta in deltas if delta["type"] == "input_json_delta"]
    command: str | None = json.loads("".join(pieces))["command"] if pieces else None
    return command
