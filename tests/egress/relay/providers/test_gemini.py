"""What an agent may use of the Gemini API."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_setup import GEMINI
from securebench.egress.model import Trouble
from securebench.egress.relay.providers.gemini import Gemini
from securebench.egress.relay.refusals import RefusedError, RelayRefusal

GOOD: dict[str, Any] = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
OPEN = replace(GEMINI, provider_tools=True)
TOOL = {"functionDeclarations": [{"name": "run_shell_command", "parametersJsonSchema": {"type": "object"}}]}
IMAGE = {"inlineData": {"mimeType": "image/png", "data": "AA=="}}

AGENT: dict[str, Any] = {
    "systemInstruction": {"role": "user", "parts": [{"text": "be precise"}]},
    "contents": [
        {"role": "user", "parts": [{"text": "what is this?"}, IMAGE, {"text": None}]},
        {
            "role": "model",
            "parts": [
                {"text": "hm", "thought": True},
                {"functionCall": {"id": "1", "name": "run_shell_command", "args": {}}, "thoughtSignature": "AA=="},
            ],
        },
        {
            "role": "user",
            "parts": [{"functionResponse": {"name": "x", "response": {"output": "a file_data"}, "parts": [IMAGE]}}],
        },
    ],
    "tools": [TOOL, {"computerUse": {"environment": "ENVIRONMENT_BROWSER"}}],
    "toolConfig": {"functionCallingConfig": {"mode": "AUTO"}},
    "safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}],
    "generationConfig": {
        "temperature": 0,
        "topP": 0.95,
        "seed": 1,
        "candidateCount": 1,
        "maxOutputTokens": 65536,
        "responseModalities": ["TEXT"],
        "thinkingConfig": {"includeThoughts": True, "thinkingBudget": -1},
    },
    "cachedContent": None,
}
"""A request with each kind of content that an agent may use, with names in camel case, as in Google's libraries."""

SNAKE: dict[str, Any] = {
    "system_instruction": {"parts": {"text": "be precise"}},
    "contents": {"parts": [{"inline_data": {"mime_type": "image/png", "data": "AA=="}}]},
    "tools": [{"function_declarations": []}],
    "generation_config": {"max_output_tokens": 9, "_response_json_schema": {}},
    "model": "models/gemini-3-pro",
}
"""A request with names in snake case, as in Google's documentation, and with single objects instead of lists."""


def reason_of(body: dict[str, Any], plan: Any = GEMINI) -> RelayRefusal | None:
    """Return the reason why ``body`` is refused, or ``None`` if it is accepted."""
    try:
        Gemini().check(body, plan)
    except RefusedError as refused:
        return refused.reason
    return None


@pytest.mark.parametrize("body", [GOOD, AGENT, SNAKE])
def test_requests_of_agents(body: dict[str, Any]) -> None:
    """Requests with names in camel case or in snake case are accepted."""
    assert reason_of(body) is None


@pytest.mark.parametrize("prefix", ["/v1beta", "/v1"])
@pytest.mark.parametrize(
    ("target", "path", "is_model", "streams"),
    [
        ("m:generateContent", "m:generateContent", True, False),
        ("m:streamGenerateContent?alt=sse", "m:streamGenerateContent?alt=sse", True, True),
        ("m:streamGenerateContent?key=x%20y&alt=sse", "m:streamGenerateContent?alt=sse", True, True),
        ("m:generateContent?key=AIza", "m:generateContent", True, False),
        ("m:countTokens", "m:countTokens", False, False),
    ],
)
def test_paths(prefix: str, target: str, path: str, is_model: bool, streams: bool) -> None:
    """The version in the agent's path is replaced by that of the base URL. A key in the query is removed."""
    route = Gemini().find(f"{prefix}/models/{target}")
    assert route is not None
    assert (route.path, route.is_model, route.streams, route.model) == (f"/models/{path}", is_model, streams, "m")
    assert Gemini().upstream_path("/v1beta", route) == f"/v1beta/models/{path}"


@pytest.mark.parametrize(
    "target",
    [
        "/models/m:generateContent",
        "/v1alpha/models/m:generateContent",
        "/v1beta/models/m:streamGenerateContent",
        "/v1beta/models/m:streamGenerateContent?alt=json",
        "/v1beta/models/m:streamGenerateContent?alt=sse&alt=json",
        "/v1beta/models/m:generateContent?alt=sse",
        "/v1beta/models/m:generateContent?$alt=sse",
        "/v1beta/models/m:generateContent?access_token=x",
        "/v1beta/models/m:embedContent",
        "/v1beta/models/m:batchGenerateContent",
        "/v1beta/models/m%2F..%2Fx:generateContent",
        "/v1beta/models/../files:generateContent",
        "/v1beta/models/a/b:generateContent",
        "/v1beta/tunedModels/m:generateContent",
        "/v1beta/models/m:generateContent/",
        "/v1beta/cachedContents",
        "/upload/v1beta/files",
    ],
)
def test_paths_that_are_refused(target: str) -> None:
    """Only the exact paths that request an answer or a token count from one model are accepted."""
    assert Gemini().find(target) is None


@pytest.mark.parametrize(
    "tool",
    [
        {"googleSearch": {}},
        {"google_search": {}},
        {"googleSearchRetrieval": {}},
        {"codeExecution": {}},
        {"urlContext": {}},
        {"functionDeclarations": [], "url_context": {}},
    ],
)
def test_tools_of_the_provider(tool: dict[str, Any]) -> None:
    """Google's own tools are accepted only with ``provider_tools``.

    Their names may be in camel case or in snake case, and functions may stand beside them.
    """
    for tools in ([tool], [TOOL, tool], tool):
        assert reason_of(GOOD | {"tools": tools}) is RelayRefusal.TOOL
        assert reason_of(GOOD | {"tools": tools}, OPEN) is None


@pytest.mark.parametrize(
    "tool",
    [
        {"googleMaps": {}},
        {"fileSearch": {}},
        {"retrieval": {}},
        {"mcpServers": [{}]},
        {"enterpriseWebSearch": {}},
        {"x": 1},
    ],
)
def test_tools_that_are_always_refused(tool: dict[str, Any]) -> None:
    """Tools that use stored data or other services, and unknown tools, are refused even with ``provider_tools``."""
    assert reason_of(GOOD | {"tools": [tool]}, OPEN) is RelayRefusal.TOOL


@pytest.mark.parametrize(
    "extra",
    [
        {"cachedContent": "cachedContents/x"},
        {"cached_content": "cachedContents/x"},
        {"store": True},
        {"labels": {}},
        {"stream": True},
        {"serviceTier": "priority"},
        {"service_tier": ["standard"]},
        {"generationConfig": {"candidateCount": 2}},
        {"generationConfig": {"candidate_count": True}},
        {"generationConfig": {"candidateCount": 1.0}},
        {"generationConfig": {"maxOutputTokens": GEMINI.tokens + 1}},
        {"generationConfig": {"maxOutputTokens": 9, "max_output_tokens": 9}},
        {"generationConfig": {"responseModalities": ["IMAGE"]}},
        {"generationConfig": {"speechConfig": {}}},
        {"generationConfig": {"modelSelectionConfig": {}}},
        {"generationConfig": [1]},
        {"toolConfig": {"other": 1}},
        {"contents": ["text"]},
        {"contents": "text"},
        {"contents": [{"role": "user", "parts": ["text"]}]},
        {"contents": [{"role": "user", "other": 1}]},
        {"systemInstruction": {"parts": [], "other": 1}},
        {"tools": ["googleSearch"]},
        {"Tools": []},
    ],
)
def test_parameters_that_are_refused(extra: Any) -> None:
    """Parameters that store data, request several answers, cost more, or are unknown or malformed are refused."""
    assert reason_of(GOOD | extra) is RelayRefusal.FIELD


@pytest.mark.parametrize("model", ["other", "models/other", "", None, 7, ["gemini-3-pro"], "gemini-3-pro "])
def test_other_models(model: Any) -> None:
    """A model in the body is refused if it is not the configured one."""
    assert reason_of(GOOD | {"model": model}) is RelayRefusal.MODEL


@pytest.mark.parametrize(
    "piece",
    [
        {"fileData": {"fileUri": "https://evil.example/x"}},
        {"file_data": {"file_uri": "files/x"}},
        {"text": "x", "fileData": {"fileUri": "gs://x/y"}},
        {"functionResponse": {"name": "x", "response": {}, "parts": [{"fileData": {"fileUri": "files/x"}}]}},
        {"function_response": {"name": "x", "parts": {"file_data": {}}}},
        {"functionResponse": {"name": "x", "fileData": {}}},
        {"inlineData": {"mimeType": "image/png", "fileUri": "https://evil.example/x"}},
        {"executableCode": {"code": "x"}},
        {"toolCall": {}},
        {"unknown": 1},
    ],
)
def test_content_that_is_refused(piece: Any) -> None:
    """Files by URI and unknown parts are refused. Parts of Google's tools are accepted only with ``provider_tools``."""
    for body in ({"contents": [{"parts": [piece]}]}, {"systemInstruction": {"parts": piece}}):
        assert reason_of(GOOD | body) is RelayRefusal.CONTENT
    assert reason_of({"contents": [{"parts": [{"executableCode": {}}, {"codeExecutionResult": {}}]}]}, OPEN) is None


def test_models_are_listed_by_the_relay() -> None:
    """The relay itself answers only GET requests for the list of models and for the configured model."""
    dialect = Gemini()
    for version in ("/v1beta", "/v1"):
        listed = json.loads(dialect.local_answer("GET", f"{version}/models", "m") or b"")
        assert [model["name"] for model in listed["models"]] == ["models/m"]
        assert json.loads(dialect.local_answer("GET", f"{version}/models/m", "m") or b"")["name"] == "models/m"
    for method, target in (("POST", "/v1beta/models"), ("GET", "/v1beta/models/x"), ("GET", "/models"), ("GET", "/")):
        assert dialect.local_answer(method, target, "m") is None


@pytest.mark.parametrize(
    ("status", "error", "trouble"),
    [
        (400, {"code": 400, "status": "INVALID_ARGUMENT", "details": [{"reason": "API_KEY_INVALID"}]}, Trouble.REFUSED),
        (400, {"code": 400, "status": "INVALID_ARGUMENT"}, Trouble.REJECTED),
        (400, {"code": 400, "status": "FAILED_PRECONDITION"}, Trouble.REFUSED),
        (403, {"code": 403, "status": "PERMISSION_DENIED"}, Trouble.REFUSED),
        (404, {"code": 404, "status": "NOT_FOUND"}, Trouble.REJECTED),
        (429, {"code": 429, "status": "RESOURCE_EXHAUSTED"}, Trouble.RATE_LIMITED),
        (500, {"code": 500, "status": "INTERNAL"}, Trouble.FAILED),
        (503, {"code": 503, "status": "UNAVAILABLE"}, Trouble.FAILED),
        (504, {"code": 504, "status": "DEADLINE_EXCEEDED"}, Trouble.FAILED),
        (503, "overloaded", Trouble.FAILED),
    ],
)
def test_errors(status: int, error: Any, trouble: Trouble) -> None:
    """The errors that Google documents are classified."""
    assert Gemini().error_trouble(status, {"error": error}) is trouble


@pytest.mark.parametrize(
    ("details", "seconds"),
    [
        (
            [{"reason": "x"}, {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.074824224s"}],
            34.07,
        ),
        ([{"retryDelay": "2s"}], 2.0),
        ([{"retryDelay": "soon"}, 5, {"retryDelay": {"seconds": 1}}], None),
        ([{"retryDelay": "9999999999s"}], None),
        ("x", None),
    ],
)
def test_when_to_try_again(details: Any, seconds: float | None) -> None:
    """The delay before a retry is read from the body, because this API has no header for it."""
    delay = Gemini().retry_delay({"error": {"code": 429, "details": details}})
    assert delay == pytest.approx(seconds, abs=0.01) if seconds else delay is None


def test_the_relays_own_errors() -> None:
    """The relay's errors have Google's format. A used-up budget is a daily quota error, which clients do not retry."""
    error: Any = Gemini().error(429, "no more")["error"]
    assert (error["code"], error["status"], error["message"]) == (429, "RESOURCE_EXHAUSTED", "no more")
    assert "PerDay" in error["details"][0]["violations"][0]["quotaId"]
    assert Gemini().error(426, "x") == {"error": {"code": 426, "message": "x", "status": "INVALID_ARGUMENT"}}


NAMES = [
    "contents",
    "parts",
    "tools",
    "role",
    "text",
    "functionResponse",
    "candidates",
    "finishReason",
    "error",
    "details",
]


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return a strategy for lists and objects of ``inner``. The keys are names that the checks read."""
    return st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.sampled_from(NAMES), nested, max_leaves=25)


@given(st.dictionaries(st.sampled_from([*NAMES, "generationConfig", "model", "toolConfig"]), JSON))
def test_checks_raise_only_refusals(body: dict[str, Any]) -> None:
    """Checking a body raises no other exception than a refusal."""
    reason_of(body)


@given(st.dictionaries(st.sampled_from([*NAMES, "usageMetadata", "promptFeedback"]), JSON, max_size=5))
def test_reading_raises_nothing(event: dict[str, Any]) -> None:
    """No JSON object that a server sends causes an exception."""
    dialect = Gemini()
    dialect.read(event)
    dialect.error_trouble(400, event)
    dialect.retry_delay(event)
    dialect.is_unknown_model(event)
