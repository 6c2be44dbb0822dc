"""What an agent may use of the Chat Completions API."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_setup import CHAT
from securebench.egress.model import Trouble
from securebench.egress.relay.providers.chat_completions import ChatCompletions
from securebench.egress.relay.refusals import RefusedError, RelayRefusal

GOOD: dict[str, Any] = {"model": "gpt-5.5", "messages": [{"role": "user", "content": "hi"}]}
OPEN = replace(CHAT, provider_tools=True)
TOOL = {"type": "function", "function": {"name": "shell", "strict": True, "parameters": {"type": "object"}}}

AGENT: dict[str, Any] = {
    "model": "gpt-5.5",
    "stream": True,
    "stream_options": {"include_usage": True},
    "messages": [
        {"role": "system", "content": "be precise"},
        {
            "role": "developer",
            "content": [{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}],
        },
        {
            "role": "user",
            "name": "ann",
            "content": [
                {"type": "text", "text": "what is this?"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA==", "detail": "low"}},
                {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
                {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AA=="}},
            ],
        },
        {
            "role": "assistant",
            "content": None,
            "refusal": None,
            "annotations": [],
            "audio": None,
            "reasoning_content": "hm",
            "provider_specific_fields": {"refusal": None, "reasoning_content": "hm", "other": None},
            "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "shell", "arguments": "{}"}},
                {"id": "d", "type": "custom", "custom": {"name": "patch", "input": "x"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c", "content": "made-by-agent\n"},
        {"role": "tool", "tool_call_id": "d", "content": [{"type": "text", "text": "done"}]},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
    ],
    "tools": [TOOL, {"type": "custom", "custom": {"name": "patch"}}],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "reasoning_effort": "low",
    "response_format": {"type": "json_object"},
    "temperature": 0,
    "seed": 1,
    "n": 1,
    "max_completion_tokens": 4096,
    "store": False,
    "stop": None,
    "metadata": None,
}


def reason_of(body: dict[str, Any], plan: Any = CHAT) -> RelayRefusal | None:
    """Return the reason why ``body`` is refused, or ``None`` if it is accepted."""
    try:
        ChatCompletions().check(body, plan)
    except RefusedError as refused:
        return refused.reason
    return None


def test_requests_of_agents() -> None:
    """A request with each documented kind of message, content and tool is accepted."""
    assert reason_of(AGENT) is None
    assert reason_of(GOOD) is None


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "web_search"},
        {"type": "web_search_preview"},
        {"type": "mcp", "server_url": "https://evil.example"},
        {"type": "openrouter:web_search"},
        {"type": "Function"},
        {"type": ""},
        {"googleSearch": {}},
        {"type": "function", "googleSearch": {}},
        {"type": "function", "codeExecution": {}},
    ],
)
def test_tools_of_the_provider(tool: dict[str, Any]) -> None:
    """A tool that the server would run, or of an unknown type, is refused even with ``provider_tools``.

    This also holds if an allowed tool stands before it.
    """
    for tools in ([tool], [TOOL, tool]):
        assert reason_of(GOOD | {"tools": tools}) is RelayRefusal.TOOL
        assert reason_of(GOOD | {"tools": tools}, OPEN) is RelayRefusal.TOOL


def test_a_field_of_a_tool_is_named_as_a_field() -> None:
    """If a tool has an unknown field, the message of the refusal calls it a field and not a tool."""
    with pytest.raises(RefusedError, match="a tool with the field 'googleSearch' is not allowed"):
        ChatCompletions().check(GOOD | {"tools": [{**TOOL, "googleSearch": {}}]}, CHAT)


def test_web_search_only_if_configured() -> None:
    """``web_search_options`` is accepted only with ``provider_tools``."""
    assert reason_of(GOOD | {"web_search_options": {}}) is RelayRefusal.FIELD
    assert reason_of(GOOD | {"web_search_options": {}}, OPEN) is None


@pytest.mark.parametrize(
    "extra",
    [
        {"store": True},
        {"store": 0},
        {"service_tier": "priority"},
        {"n": 2},
        {"n": 0},
        {"n": True},
        {"n": 1.0},
        {"stream": 1},
        {"stream": "true"},
        {"stream_options": True},
        {"stream_options": {"include_usage": True, "other": 1}},
        {"max_tokens": 0},
        {"max_tokens": True},
        {"max_tokens": "9"},
        {"max_tokens": CHAT.tokens + 1},
        {"max_completion_tokens": CHAT.tokens + 1},
        {"models": ["other"]},
        {"fallbacks": ["other"]},
        {"route": "fallback"},
        {"provider": {"order": ["x"]}},
        {"plugins": [{"id": "web"}]},
        {"api_base": "https://evil.example"},
        {"api_key": "sk-other"},
        {"metadata": {"tags": ["x"]}},
        {"modalities": ["audio"]},
        {"audio": {"voice": "x"}},
        {"functions": []},
        {"chat_template": "x"},
        {"Model": "other"},
        {"tools": {"type": "function"}},
        {"tools": ["web_search"]},
        {"tools": [{"type": ["function"]}]},
        {"messages": {"role": "user"}},
        {"messages": [["a"]]},
        {"messages": [{"role": "user", "content": {"type": "text"}}]},
        {"messages": [{"role": "assistant", "audio": {"id": "audio_of_another"}}]},
        {"messages": [{"role": "user", "content": "x", "other": 1}]},
        {"messages": [{"role": "assistant", "content": "x", "provider_specific_fields": {"api_base": "x"}}]},
        {"messages": [{"role": "assistant", "content": "x", "provider_specific_fields": "x"}]},
    ],
)
def test_parameters_that_are_refused(extra: Any) -> None:
    """Parameters that store data, request several answers or change the server are refused.

    Unknown and malformed parameters are also refused.
    """
    assert reason_of(GOOD | extra) is RelayRefusal.FIELD


@pytest.mark.parametrize("model", ["gpt-5.5:online", "GPT-5.5", "gpt-5.5 ", "", None, ["gpt-5.5"], 5])
def test_other_models(model: Any) -> None:
    """Any model other than the configured one is refused."""
    assert reason_of(GOOD | {"model": model}) is RelayRefusal.MODEL


@pytest.mark.parametrize(
    "piece",
    [
        {"type": "image_url", "image_url": {"url": "https://evil.example/x.png"}},
        {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}},
        {"type": "image_url", "image_url": {"url": " data:x"}},
        {"type": "image_url", "image_url": {"url": ["https://evil.example"]}},
        {"type": "image_url", "image_url": "https://evil.example/x.png"},
        {"type": "image_url", "image_url": {"url": "data:x", "file_id": "f"}},
        {"type": "text", "text": "x", "image_url": {"url": "https://evil.example/x.png"}},
        {"image_url": "https://evil.example/x.png"},
        {"type": "video_url", "video_url": {"url": "https://evil.example/x"}},
        {"type": "audio_url", "audio_url": {"url": "https://evil.example/x"}},
        {"type": "file", "file": {"file_id": "file-of-another"}},
        {"type": "file", "file": {"file_data": "https://evil.example/x.pdf"}},
        {"type": "input_audio", "input_audio": {"url": "https://evil.example/x"}},
        {"type": "image_embeds", "image_embeds": "x"},
    ],
)
def test_content_that_would_be_fetched(piece: Any) -> None:
    """Content that the server would fetch or that is of an unknown type is refused, also beside other content."""
    for message in (
        {"role": "user", "content": [piece]},
        {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "x"}, piece]},
        {"role": "system", "content": [piece]},
    ):
        assert reason_of(GOOD | {"messages": [message]}) is RelayRefusal.CONTENT


def test_usage_is_requested_for_streams_only() -> None:
    """For a stream, ``include_usage`` is set if it is missing or off. The agent's other options are kept."""
    dialect, request = ChatCompletions(), GOOD | {"stream": True}
    for options in ({}, {"stream_options": None}, {"stream_options": {"include_usage": False}}):
        assert dialect.with_usage(request | options)["stream_options"] == {"include_usage": True}
    other = request | {"stream_options": {"include_obfuscation": False}}
    assert dialect.with_usage(other)["stream_options"] == {"include_obfuscation": False, "include_usage": True}
    for body in (GOOD, GOOD | {"stream": False}, request | {"stream_options": {"include_usage": True}}):
        assert dialect.with_usage(body) is body


def test_models_are_listed_by_the_relay() -> None:
    """The relay's list of models has only the configured model. It is sent only for GET requests to its two paths."""
    dialect = ChatCompletions()
    for target in ("/v1/models", "/models"):
        listed = json.loads(dialect.local_answer("GET", target, "org/m:x") or b"")
        assert [model["id"] for model in listed["data"]] == ["org/m:x"]
    for method, target in (("POST", "/v1/models"), ("GET", "/v1/models?x=1"), ("GET", "/v1/models/m"), ("HEAD", "/")):
        assert dialect.local_answer(method, target, "m") is None


@pytest.mark.parametrize(
    ("status", "error", "trouble"),
    [
        (
            401,
            {"message": "Incorrect API key", "code": "invalid_api_key"},
            Trouble.REFUSED,
        ),
        (
            402,
            {"message": "Insufficient Balance", "code": "invalid_request_error"},
            Trouble.REFUSED,
        ),
        (403, {"message": "No", "code": "unsupported_country_region_territory"}, Trouble.REFUSED),
        (
            403,
            {"code": 403, "metadata": {"reasons": ["x"], "flagged_input": "y"}},
            Trouble.DECLINED,
        ),
        (404, {"message": "The model `x` does not exist", "code": "model_not_found"}, Trouble.REJECTED),
        (429, {"message": "Rate limit reached", "code": "rate_limit_exceeded"}, Trouble.RATE_LIMITED),
        (
            429,
            {"message": "You exceeded your quota", "code": "insufficient_quota"},
            Trouble.REFUSED,
        ),
        (400, {"message": "filtered", "code": "content_filter"}, Trouble.DECLINED),
        (400, {"message": "too long", "code": "context_length_exceeded"}, Trouble.REJECTED),
        (400, {"object": "error", "message": "bad", "code": 400}, Trouble.REJECTED),
        (500, {"message": "sorry", "type": "server_error", "code": None}, Trouble.FAILED),
        (503, "overloaded", Trouble.FAILED),
    ],
)
def test_errors_of_servers(status: int, error: Any, trouble: Trouble) -> None:
    """The errors that OpenAI, Azure, vLLM, DeepSeek and OpenRouter document are classified."""
    assert ChatCompletions().error_trouble(status, {"error": error}) is trouble


NAMES = ["type", "choices", "delta", "message", "finish_reason", "refusal", "usage", "error", "code", "content"]


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return a strategy for lists and objects of ``inner``. The keys are names that the checks read."""
    return st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.sampled_from(NAMES), nested, max_leaves=25)


@given(st.dictionaries(st.sampled_from(["tools", "messages", "stream", "stream_options", "n", "store"]), JSON))
def test_checks_raise_only_refusals(body: dict[str, Any]) -> None:
    """Checking a body raises no other exception than a refusal. Each accepted stream is made to report its usage."""
    if reason_of(GOOD | body) is None and (GOOD | body).get("stream"):
        assert ChatCompletions().with_usage(GOOD | body)["stream_options"]["include_usage"] is True  # type: ignore[index, call-overload]


@given(st.dictionaries(st.sampled_from(NAMES), JSON, max_size=5))
def test_reading_raises_nothing(event: dict[str, Any]) -> None:
    """No JSON object that a server sends causes an exception."""
    dialect = ChatCompletions()
    dialect.read(event)
    dialect.read_whole(event)
    dialect.is_added(event)
    dialect.error_trouble(400, event)
    dialect.is_unknown_model(event)
