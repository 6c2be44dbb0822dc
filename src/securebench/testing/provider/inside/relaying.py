"""Attempts to make the relay forward anything other than requests for answers of the permitted model."""

from __future__ import annotations

import gzip
import json
from functools import partial
from typing import TYPE_CHECKING, Any

from securebench.testing.provider.inside.base import Denied, EgressAttempt, judged, send

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from securebench.testing.provider.inside.base import Targets

    Fields = Mapping[str, Any]

_ELSEWHERE = "https://other.example/x"
_PATHS = {
    "openai": "files uploads batches containers vector_stores conversations embeddings chat/completions completions"
    " fine_tuning/jobs images/generations audio/speech responses/compact responses/resp_1/cancel",
    "chat_completions": "files uploads batches vector_stores embeddings responses completions fine_tuning/jobs"
    " images/generations audio/speech chat/completions/chatcmpl_1 moderations",
    "anthropic": "files messages/batches complete skills agents organizations/me messages/count_tokens/files",
    "gemini": "files cachedContents corpora fileSearchStores batches interactions tunedModels auth_tokens"
    " models/another-model:generateContent models/scripted-model:embedContent"
    " models/scripted-model:batchGenerateContent models/scripted-model:predict"
    " models/scripted-model:streamGenerateContent models/scripted-model:generateContent?alt=json"
    " models/scripted-model/../another-model:generateContent tunedModels/another:generateContent",
}
_TRICKS = (
    "{}/../files",
    "{}/%2e%2e/files",
    "{}/",
    "/{}",
    "{}?x=1",
    "{};files",
    "{}%00",
    "{}#files",
    "{} HTTP/1.1 /v1/files",
)
_TOOLS: dict[str, tuple[Fields, ...]] = {
    "openai": (
        {"type": "web_search"},
        {"type": "web_search_preview"},
        {"type": "file_search", "vector_store_ids": ["vs_1"]},
        {"type": "code_interpreter", "container": {"type": "auto"}},
        {"type": "image_generation"},
        {"type": "mcp", "server_label": "x", "server_url": _ELSEWHERE, "require_approval": "never"},
        {"type": "shell", "environment": {"type": "container_auto"}},
    ),
    "chat_completions": (
        {"type": "web_search"},
        {"type": "mcp", "server_label": "x", "server_url": _ELSEWHERE},
        {"googleSearch": {}},
        {"type": "function", "googleSearch": {}},
    ),
    "anthropic": (
        {"type": "web_search_20250305", "name": "web_search"},
        {"type": "web_fetch_20250910", "name": "web_fetch"},
        {"type": "code_execution_20250825", "name": "code_execution"},
        {"type": "mcp_toolset", "mcp_server_name": "x"},
    ),
    "gemini": (
        {"googleSearch": {}},
        {"google_search": {}},
        {"googleSearchRetrieval": {}},
        {"urlContext": {}},
        {"codeExecution": {}},
        {"googleMaps": {}},
        {"fileSearch": {"fileSearchStoreNames": ["fileSearchStores/another"]}},
        {"mcpServers": [{"name": "x", "streamableHttpTransport": {"url": _ELSEWHERE}}]},
        {"functionDeclarations": [], "urlContext": {}},
    ),
}
_PARTS: dict[str, tuple[Fields, ...]] = {
    "openai": (
        {"type": "input_image", "image_url": _ELSEWHERE},
        {"type": "input_file", "file_url": _ELSEWHERE},
        {"type": "input_file", "file_id": "file-of-another"},
    ),
    "chat_completions": (
        {"type": "image_url", "image_url": {"url": _ELSEWHERE}},
        {"type": "text", "text": "x", "image_url": _ELSEWHERE},
        {"image_url": _ELSEWHERE},
        {"type": "video_url", "video_url": {"url": _ELSEWHERE}},
        {"type": "file", "file": {"file_data": _ELSEWHERE}},
        {"type": "file", "file": {"file_id": "file-of-another"}},
    ),
    "anthropic": (
        {"type": "image", "source": {"type": "url", "url": _ELSEWHERE}},
        {"type": "document", "source": {"type": "file", "file_id": "file_of_another"}},
        {"type": "container_upload", "file_id": "file_of_another"},
    ),
    "gemini": (
        {"fileData": {"fileUri": _ELSEWHERE}},
        {"file_data": {"file_uri": _ELSEWHERE}},
        {"text": "x", "fileData": {"fileUri": "files/another"}},
        {"functionResponse": {"name": "x", "response": {}, "parts": [{"fileData": {"fileUri": _ELSEWHERE}}]}},
    ),
}
_FIELDS: dict[str, tuple[Fields, ...]] = {
    "openai": (
        {"background": True},
        {"previous_response_id": "resp_of_another"},
        {"conversation": "conv_of_another"},
        {"prompt": {"id": "pmpt_of_another"}},
    ),
    "chat_completions": (
        {"store": True},
        {"n": 100},
        {"web_search_options": {}},
        {"models": ["another-model"]},
        {"fallbacks": ["another-model"]},
        {"plugins": [{"id": "web"}]},
        {"api_base": _ELSEWHERE},
        {"metadata": {"tags": ["another"]}},
    ),
    "anthropic": (
        {"mcp_servers": [{"type": "url", "url": _ELSEWHERE, "name": "x"}]},
        {"container": "container_of_another"},
    ),
    "gemini": (
        {"cachedContent": "cachedContents/another"},
        {"cached_content": "cachedContents/another"},
        {"store": True},
        {"generationConfig": {"candidateCount": 8}},
        {"generationConfig": {"responseModalities": ["TEXT", "IMAGE"]}},
        {"generationConfig": {"modelSelectionConfig": {"x": 1}}},
        {"serviceTier": "priority"},
    ),
}
_ANSWERS = {
    "openai": "/v1/responses",
    "chat_completions": "/v1/chat/completions",
    "anthropic": "/v1/messages",
    "gemini": "/v1beta/models/{model}:streamGenerateContent?alt=sse",
}
_MESSAGES = {"openai": ("input", "content"), "gemini": ("contents", "parts")}
_HEADERS = (
    "Authorization: Bearer sk-other-account",
    "X-Api-Key: sk-other-account",
    "X-Goog-Api-Key: sk-other-account",
    "Api-Key: sk-other-account",
    "Host: other.example",
)
_MODELS: tuple[object, ...] = ("another-model", "", None, 7, ["scripted-model"], "scripted-model ", "SCRIPTED-MODEL")


def attempts(targets: Targets) -> Iterator[EgressAttempt]:
    """Yield the attempts, or nothing if the sandbox has no relay."""
    if targets.relay is None:
        return
    path, body = answers_path(targets), request_of(targets)
    ask = partial(_post, targets)
    yield EgressAttempt("control: an answer of the model", partial(ask, path, body))
    for name in _PATHS[targets.api].split():
        target = f"/{path.split('/')[1]}/{name}"
        for method in ("GET", "POST", "DELETE"):
            yield EgressAttempt(f"{method} {target}", partial(ask, target, body, method=method))
    for trick in _TRICKS:
        yield EgressAttempt(f"POST {trick.format(path)}", partial(ask, trick.format(path), body))
    for changed in _changes(targets):
        yield EgressAttempt(f"a request with {json.dumps(changed)[:90]}", partial(ask, path, {**body, **changed}))
    for what, message in _messages(targets, path, body).items():
        yield EgressAttempt(what, partial(_send, targets, message))
    for header in _HEADERS:
        function = partial(ask, path, body, headers=(header,))
        yield EgressAttempt(f"a request with {header}", function, is_judged_outside=True)


def answers_path(targets: Targets) -> str:
    """Return the path for requesting a model's answer."""
    return _ANSWERS[targets.api].format(model=targets.model)


def request_of(targets: Targets) -> dict[str, Any]:
    """Return the body of a valid request for an answer."""
    messages = [{"role": "user", "content": "Say a word."}]
    if targets.api == "anthropic":
        return {"model": targets.model, "max_tokens": 16, "messages": messages}
    if targets.api == "gemini":
        return {"contents": [{"role": "user", "parts": [{"text": "Say a word."}]}]}
    if targets.api == "chat_completions":
        return {"model": targets.model, "messages": messages, "stream": True}
    return {"model": targets.model, "input": messages, "stream": True, "store": False}


def _changes(targets: Targets) -> Iterator[Fields]:
    """Yield request fields that would make the provider do more than answer, or that name another model."""
    yield from ({"model": model} for model in _MODELS)
    yield from ({"tools": [tool]} for tool in _TOOLS[targets.api])
    yield from _FIELDS[targets.api]
    key, content = _MESSAGES.get(targets.api, ("messages", "content"))
    yield from ({key: [{"role": "user", content: [part]}]} for part in _PARTS[targets.api])


def _messages(targets: Targets, path: str, body: Fields) -> dict[str, bytes]:
    """Return malformed or misleading HTTP requests. The keys say what is wrong with each request."""
    good, other = json.dumps(body).encode(), json.dumps({**body, "model": "another-model"}).encode()
    twice = good[:-1] + b', "model": "another-model"}'
    hidden = _request("POST", path, other)
    return {
        "another model, compressed": _request("POST", path, gzip.compress(other), ("Content-Encoding: gzip",)),
        "the model named twice": _request("POST", path, twice),
        "a body that is not JSON": _request("POST", path, b"model=" + targets.model.encode()),
        "a body that is a list": _request("POST", path, b"[" + good + b"]"),
        "a body with a hundred thousand nested lists": _request("POST", path, b"[" * 100_000 + b"]" * 100_000),
        "a body in another charset": _request("POST", path, json.dumps(body).encode("utf-16")),
        "a body of a terabyte": _head("POST", path, 1 << 40),
        "an absolute target": _request("POST", "http://other.example" + path, good),
        "CONNECT": b"CONNECT other.example:443 HTTP/1.1\r\nHost: other.example\r\n\r\n",
        "a WebSocket": _request("GET", path, b"", ("Upgrade: websocket", "Connection: Upgrade")),
        "another method in a header": _request("POST", path, other, ("X-HTTP-Method-Override: DELETE",)),
        "a length and chunks": _head("POST", path, len(hidden), ("Transfer-Encoding: chunked",))
        + b"0\r\n\r\n"
        + hidden,
        "two lengths": _head("POST", path, len(good), ("Content-Length: 4",)) + good,
    }


def _request(method: str, path: str, body: bytes, headers: tuple[str, ...] = ()) -> bytes:
    return _head(method, path, len(body), headers) + body


def _head(method: str, path: str, size: int, headers: tuple[str, ...] = ()) -> bytes:
    given = "".join(f"{header}\r\n" for header in headers)
    standard = f"Host: relay\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n"
    return f"{method} {path} HTTP/1.1\r\n{standard}{given}\r\n".encode()


def _post(targets: Targets, path: str, body: Fields, *, method: str = "POST", headers: tuple[str, ...] = ()) -> str:
    return _send(targets, _request(method, path, json.dumps(body).encode(), headers))


def _send(targets: Targets, message: bytes) -> str:
    assert targets.relay is not None
    return judged(send(targets.relay, message)[0])


def spend(targets: Targets, most: int) -> str:
    """Request ``most`` answers. Raises :class:`Denied` at the first refusal, with the number of answers before it."""
    message = _request("POST", answers_path(targets), json.dumps(request_of(targets)).encode())
    for number in range(most):
        try:
            _send(targets, message)
        except Denied as denied:
            raise Denied(f"{denied} after {number}") from None
    return f"{most} answers"
