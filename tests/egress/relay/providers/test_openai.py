"""What an agent may use of the Responses API."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_setup import PLAN
from securebench.egress.relay.providers.base import NOTHING
from securebench.egress.relay.providers.openai import OpenAI
from securebench.egress.relay.refusals import RefusedError, RelayRefusal

GOOD: dict[str, Any] = {"model": "gpt-5.5", "store": False, "stream": True, "input": "hi"}
OPEN = replace(PLAN, provider_tools=True)

CODEX: dict[str, Any] = {
    "model": "gpt-5.5",
    "stream": True,
    "input": [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "be precise"}]},
        {"type": "reasoning", "summary": [], "content": None, "encrypted_content": "gAAA"},
        {"type": "function_call", "call_id": "c", "name": "exec_command", "arguments": '{"cmd":"ls"}'},
        {"type": "function_call_output", "call_id": "c", "output": "made-by-agent\n"},
        {"type": "function_call_output", "call_id": "d", "output": [{"type": "input_text", "text": "x"}]},
        {"type": "custom_tool_call", "call_id": "e", "name": "apply_patch", "input": "*** Begin Patch"},
        {"type": "custom_tool_call_output", "call_id": "e", "output": "Done"},
        {"type": "message", "content": [{"type": "input_image", "image_url": "data:image/png,A"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]},
    ],
    "tools": [
        {"type": "function", "name": "exec_command", "strict": False, "parameters": {"type": "object"}},
        {"type": "custom", "name": "apply_patch", "format": {"type": "grammar", "syntax": "lark", "definition": "x"}},
        {"type": "namespace", "name": "agents", "tools": [{"type": "function", "name": "spawn", "parameters": {}}]},
        {"type": "tool_search", "execution": "client", "parameters": {}},
        {"type": "local_shell"},
    ],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "reasoning": {"effort": "medium", "summary": "auto"},
    "store": False,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "k",
    "text": {"verbosity": "low"},
    "client_metadata": {"session_id": "s"},
}  # fmt: skip


def reason_of(body: dict[str, Any], plan: Any = PLAN) -> RelayRefusal | None:
    """Return the reason why ``body`` is refused, or ``None`` if it is accepted."""
    try:
        OpenAI().check(body, plan)
    except RefusedError as refused:
        return refused.reason
    return None


def test_what_codex_sends() -> None:
    """A request in the form that Codex sends is accepted."""
    assert reason_of(CODEX) is None


def test_tools_in_the_input() -> None:
    """For newer models, tools are in an item of the input. They are checked like the tools in ``tools``."""
    item: dict[str, Any] = {"type": "additional_tools", "role": "developer", "tools": CODEX["tools"]}
    assert reason_of(GOOD | {"input": [item]}) is None
    inner = {"type": "namespace", "name": "functions", "tools": [{"type": "web_search"}]}
    for tools in ([{"type": "web_search"}], [inner], [{"type": "mcp", "server_url": "https://evil.example"}]):
        assert reason_of(GOOD | {"input": [item | {"tools": tools}]}) is RelayRefusal.TOOL
        assert reason_of(GOOD | {"input": [{"type": "tool_search_output", "tools": tools}]}) is RelayRefusal.TOOL
        assert reason_of(GOOD | {"input": [{"role": "user", "content": "hi", "tools": tools}]}) is RelayRefusal.TOOL


@pytest.mark.parametrize(
    "kind",
    [
        *("web_search", "web_search_preview", "web_search_preview_2025_03_11", "file_search", "code_interpreter"),
        *("mcp", "image_generation", "computer", "computer_use_preview", "shell", "tool_search", "Function", "", "x"),
    ],
)
def test_tools_of_the_provider(kind: str) -> None:
    """A tool that the provider would run and a tool of an unknown type are refused."""
    tool = {"type": kind}
    assert reason_of(GOOD | {"tools": [tool]}) is RelayRefusal.TOOL
    assert reason_of(GOOD | {"tools": [{"type": "namespace", "tools": [tool]}]}) is RelayRefusal.TOOL
    assert reason_of(GOOD | {"tools": [{"type": "function", "name": "a"}, tool]}) is RelayRefusal.TOOL


def test_refusal_says_what_to_do() -> None:
    """The refusal of a tool names the tool and the setting that would allow it."""
    with pytest.raises(RefusedError, match=r"'web_search'.*provider_tools"):
        OpenAI().check(GOOD | {"tools": [{"type": "web_search"}]}, PLAN)


def test_provider_tools_if_the_tester_says_so() -> None:
    """With ``provider_tools``, web search and code execution are accepted. MCP servers and stored files are not."""
    admitted: list[dict[str, Any]] = [
        {"type": "web_search"},
        {"type": "code_interpreter", "container": {"type": "auto"}},
    ]
    for tool in admitted:
        assert reason_of(GOOD | {"tools": [tool]}, OPEN) is None
    assert reason_of(GOOD | {"input": [{"type": "web_search_call", "action": {}}]}, OPEN) is None
    assert (
        reason_of(GOOD | {"tools": [{"type": "mcp", "server_url": "https://evil.example"}]}, OPEN) is RelayRefusal.TOOL
    )
    assert reason_of(GOOD | {"tools": [{"type": "file_search", "vector_store_ids": ["v"]}]}, OPEN) is RelayRefusal.TOOL
    for taken in ("container_1", {"type": "auto", "file_ids": ["f"]}):
        tool = {"type": "code_interpreter", "container": taken}
        assert reason_of(GOOD | {"tools": [tool]}, OPEN) is RelayRefusal.CONTENT


@pytest.mark.parametrize(
    "extra",
    [
        {"background": True},
        {"conversation": "conv_1"},
        {"previous_response_id": "resp_1"},
        {"prompt": {"id": "pmpt_1"}},
        {"store": True},
        {"store": None},
        {"store": 0},
        {"service_tier": "priority"},
        {"Model": "other"},
        {"unknown": 1},
        {"tools": {"type": "function"}},
        {"tools": ["web_search"]},
        {"tools": [{"type": ["web_search"]}]},
        {"input": {"type": "message"}},
        {"input": [["a"]]},
        {"input": [{"type": "message", "content": {"type": "input_text"}}]},
    ],
)
def test_parameters_that_are_not_admitted(extra: Any) -> None:
    """Parameters for stored data, background runs or a higher price are refused.

    Unknown and malformed parameters are refused, too.
    """
    assert reason_of(GOOD | extra) is RelayRefusal.FIELD


def test_storing_must_be_turned_off() -> None:
    """A request without ``store`` is refused, because the provider stores requests by default."""
    body = dict(GOOD)
    del body["store"]
    assert reason_of(body) is RelayRefusal.FIELD


@pytest.mark.parametrize("model", ["gpt-5.5-pro", "GPT-5.5", "gpt-5.5 ", "", None, ["gpt-5.5"], 5])
def test_other_models(model: Any) -> None:
    """Any model other than the configured one is refused."""
    assert reason_of(GOOD | {"model": model}) is RelayRefusal.MODEL


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_image", "image_url": "https://evil.example/x.png"},
        {"type": "input_image", "image_url": "http://169.254.169.254/"},
        {"type": "input_image", "image_url": {"url": "https://evil.example/x.png"}},
        {"type": "input_image", "image_url": " data:x"},
        {"type": "input_image", "file_id": "file_1"},
        {"type": "input_file", "file_url": "https://evil.example/x.pdf"},
        {"type": "input_file", "file_id": "file_1"},
        {"type": "input_text", "text": "x", "file_id": "file_1"},
        {"type": "input_audio", "input_audio": {}},
        {"type": "computer_screenshot"},
    ],
)
def test_content_that_would_be_fetched(part: Any) -> None:
    """Content that the provider would fetch or that is of an unknown type is refused in every kind of item."""
    places: list[dict[str, Any]] = [
        {"type": "message", "role": "user", "content": [part]},
        {"role": "user", "content": [part]},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "x"}, part]},
        {"type": "custom_tool_call_output", "call_id": "c", "output": [part]},
        {"type": "reasoning", "summary": [part]},
    ]
    for item in places:
        assert reason_of(GOOD | {"input": [item]}) is RelayRefusal.CONTENT


@pytest.mark.parametrize(
    "kind",
    ["item_reference", "mcp_call", "mcp_list_tools", "file_search_call", "web_search_call", "computer_call", "x"],
)
def test_items_that_are_not_known(kind: str) -> None:
    """A reference to a stored item, an item of a provider's tool and an item of an unknown type are refused."""
    assert reason_of(GOOD | {"input": [{"type": kind, "id": "i"}]}) is RelayRefusal.CONTENT


NAMES = ["type", "tools", "content", "output", "image_url", "file_id", "execution", "usage", "error"]
KINDS = ["function", "web_search", "namespace", "message", "additional_tools", "input_image", "data:", ""]


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return a strategy for lists and objects of ``inner``. The objects have names that the checks read."""
    return st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.sampled_from(KINDS), nested, max_leaves=25)


@given(st.dictionaries(st.sampled_from(["tools", "input", "model", "store", "service_tier", "x"]), JSON, max_size=4))
def test_checks_raise_refusals_alone(body: dict[str, Any]) -> None:
    """Checking a body raises no other exception than a refusal. A body with a web search tool is never accepted."""
    admitted = reason_of(GOOD | body) is None
    assert not (admitted and isinstance(body.get("tools"), list) and {"type": "web_search"} in body["tools"])


@given(st.dictionaries(st.sampled_from(["type", "response", "usage", "error", "status", "code"]), JSON, max_size=4))
def test_reading_raises_nothing(event: dict[str, Any]) -> None:
    """No JSON object that a provider sends causes an exception."""
    for kind in ("response.completed", "response.failed", "error"):
        OpenAI().read(event | {"type": kind})
    OpenAI().read_whole(event)
    OpenAI().error_trouble(400, event)
    assert OpenAI().read({"type": "response.output_text.delta", "delta": "x"}) is NOTHING
