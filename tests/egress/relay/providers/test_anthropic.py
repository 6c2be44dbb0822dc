"""The parts of Anthropic's Messages API that an agent may use."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_setup import CLAUDE
from securebench.egress.relay.providers.anthropic import Anthropic
from securebench.egress.relay.providers.base import NOTHING
from securebench.egress.relay.refusals import RefusedError, RelayRefusal
from securebench.money import TokenPrices

if TYPE_CHECKING:
    from securebench.egress.model import RelayPlan

GOOD: dict[str, Any] = {"model": "claude-sonnet-5", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}
OPEN = replace(CLAUDE, provider_tools=True)
BASE64 = {"type": "base64", "media_type": "image/png", "data": "AA"}

CLAUDE_CODE: dict[str, Any] = {
    "model": "claude-sonnet-5",
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]},
        {"role": "system", "content": "Available agent types"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "", "signature": "s"},
                {"type": "tool_use", "id": "t", "name": "Bash", "input": {"source": {"type": "url"}, "file_id": "f"}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "made"}]},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "u", "content": [{"type": "image", "source": BASE64}]}],
        },
        {"role": "user", "content": [{"type": "document", "source": {"type": "text", "data": "x"}}]},
    ],
    "system": [{"type": "text", "text": "You are Claude Code", "cache_control": {"type": "ephemeral"}}],
    "tools": [{"name": "Bash", "description": "runs", "input_schema": {"type": "object"}}],
    "metadata": {"user_id": "u"},
    "max_tokens": 64000,
    "thinking": {"type": "adaptive"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "output_config": {"effort": "high"},
    "stream": True,
}  # fmt: skip


def reason_of(body: dict[str, Any], plan: Any = CLAUDE) -> RelayRefusal | None:
    """Return why ``body`` is refused, or ``None`` if it is admitted."""
    try:
        Anthropic().check(body, plan)
    except RefusedError as refused:
        return refused.reason
    return None


def holding(block: Any) -> dict[str, Any]:
    """Return a request whose content contains ``block``."""
    return GOOD | {"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}, block]}]}


def test_what_claude_code_sends() -> None:
    """A request of Claude Code is admitted, even if the arguments of its tools look like refused content."""
    assert reason_of(CLAUDE_CODE) is None


@pytest.mark.parametrize(
    ("configured", "requested", "fits"),
    [
        ("sonnet", "claude-sonnet-5", True),
        ("sonnet", "claude-sonnet-4-5-20250929", True),
        ("sonnet", "claude-3-5-sonnet-latest", True),
        ("sonnet", "claude-opus-4-8", False),
        ("sonnet", "claude-haiku-4-5-20251001", False),
        ("sonnet", "claude-sonnetx-5", False),
        ("sonnet", "sonnet", True),
        ("sonnet", "my-sonnet", False),
        ("sonnet[1m]", "claude-sonnet-5", True),
        ("opus", "claude-opus-4-8", True),
        ("haiku", "claude-haiku-4-5-20251001", True),
        ("default", "claude-opus-4-8", True),
        ("default", "claude-other-1", False),
        ("opusplan", "claude-sonnet-5", True),
        ("opusplan", "claude-haiku-4-5", False),
        ("claude-sonnet-4-5", "claude-sonnet-4-5", True),
        ("claude-sonnet-4-5", "claude-sonnet-5", False),
        ("claude-sonnet-4-5[1m]", "claude-sonnet-4-5", True),
        ("my-local-model", "my-local-model", True),
        ("my-local-model", "claude-sonnet-5", False),
        ("sonnet", None, False),
        ("sonnet", ["claude-sonnet-5"], False),
    ],
)
def test_models(configured: str, requested: Any, fits: bool) -> None:
    """An alias such as ``sonnet`` admits the models that it stands for. Other configured names admit only themselves.

    ``default`` stands for all known models, ``opusplan`` for Opus and Sonnet. The suffix ``[1m]`` does not count.
    """
    reason = reason_of(GOOD | {"model": requested}, replace(CLAUDE, model=configured))
    assert reason is (None if fits else RelayRefusal.MODEL)


@pytest.mark.parametrize(
    ("kind", "admitted"),
    [
        (None, True),
        ("custom", True),
        ("bash_20250124", True),
        ("text_editor_20250728", True),
        ("memory_20250818", True),
        ("tool_search_tool_regex_20251119", True),
        ("web_search_20250305", False),
        ("web_fetch_20250910", False),
        ("code_execution_20260120", False),
        ("advisor_20260301", False),
        ("mcp_toolset", False),
        ("bash_20250124_web_search_20250305", False),
        ("bash_", False),
        ("", False),
    ],
)
def test_tools(kind: str | None, admitted: bool) -> None:
    """Tools that the agent runs, and tools that search the request's tools, are admitted.

    Other tools that the provider runs, and unknown tools, are refused.
    """
    tools = [{"type": "custom", "name": "a"}, {"type": kind, "name": "b"}]
    assert reason_of(GOOD | {"tools": tools}) is (None if admitted else RelayRefusal.TOOL)


def test_provider_tools_if_the_tester_says_so() -> None:
    """``provider_tools`` admits the provider's tools, their content blocks and sources by URL, and nothing else."""
    for kind in ("web_search_20250305", "web_fetch_20260209", "code_execution_20260120"):
        assert reason_of(GOOD | {"tools": [{"type": kind, "name": "x"}]}, OPEN) is None
    assert reason_of(holding({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}), OPEN) is None
    assert reason_of(holding({"type": "document", "source": {"type": "url", "url": "https://x.example"}}), OPEN) is None
    held = {"type": "code_execution_20260120", "name": "x", "container": "container_1"}
    assert reason_of(GOOD | {"tools": [held]}, OPEN) is RelayRefusal.CONTENT
    assert reason_of(GOOD | {"tools": [{"type": "mcp_toolset"}]}, OPEN) is RelayRefusal.TOOL
    assert (
        reason_of(GOOD | {"tools": [{"type": "advisor_20260301", "model": "claude-opus-4-8"}]}, OPEN)
        is RelayRefusal.TOOL
    )
    assert reason_of(GOOD | {"mcp_servers": [{"url": "https://evil.example"}]}, OPEN) is RelayRefusal.FIELD
    assert reason_of(GOOD | {"container": "c"}, OPEN) is RelayRefusal.FIELD
    assert reason_of(holding({"type": "container_upload", "file_id": "f"}), OPEN) is RelayRefusal.CONTENT


@pytest.mark.parametrize(
    "extra",
    [
        {"mcp_servers": [{"type": "url", "url": "https://evil.example", "name": "x"}]},
        {"container": {"skills": []}},
        {"fallbacks": [{"model": "claude-opus-4-8"}]},
        {"speed": "fast"},
        {"betas": ["files-api-2025-04-14"]},
        {"Tools": []},
        {"unknown": 1},
        {"messages": {"role": "user"}},
        {"messages": ["hi"]},
        {"messages": [{"role": "user", "content": {"type": "text"}}]},
        {"system": [["x"]]},
        {"tools": [{"type": {"web_search_20250305": 1}}]},
    ],
)
def test_parameters_that_are_not_admitted(extra: Any) -> None:
    """Parameters for other servers, other models or stored data are refused, and so are unknown and malformed ones."""
    assert reason_of(GOOD | extra) is RelayRefusal.FIELD


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image", "source": {"type": "url", "url": "https://evil.example/x.png"}},
        {"type": "document", "source": {"type": "url", "url": "https://evil.example/x.pdf"}},
        {"type": "image", "source": {"type": "file", "file_id": "f"}},
        {"type": "image", "source": BASE64 | {"file_id": "f"}},
        {"type": "container_upload", "file_id": "f"},
        {"type": "server_tool_use", "name": "web_search"},
        {"type": "mcp_tool_use", "name": "x"},
        {"type": "unknown"},
        {"text": "no type"},
    ],
)
def test_content_that_would_be_fetched(block: Any) -> None:
    """Content that the provider would fetch, content of its tools, and unknown content are refused at every level."""
    nested = {"type": "tool_result", "tool_use_id": "t", "content": [block]}
    inner = {"type": "document", "source": {"type": "content", "content": [block]}}
    for body in (
        holding(block),
        holding(nested),
        holding(inner),
        holding({"type": "tool_result", "tool_use_id": "t", "content": [inner]}),
        GOOD | {"system": [block]},
    ):
        assert reason_of(body) is RelayRefusal.CONTENT


@pytest.mark.parametrize(
    ("beta", "plan", "admitted"),
    [
        ("claude-code-20250219,interleaved-thinking-2025-05-14", CLAUDE, True),
        ("files-api-2025-04-14", CLAUDE, False),
        ("claude-code-20250219, MCP-client-2025-11-20", OPEN, False),
        ("web-fetch-2025-09-10", CLAUDE, False),
        ("code-execution-2025-08-25", OPEN, True),
        ("server-side-fallback-2026-06-01", OPEN, False),
    ],
)
def test_betas(beta: str, plan: Any, admitted: bool) -> None:
    """A beta header is refused if a body that uses the same feature is refused. Case does not matter."""
    given = [(b"anthropic-beta", beta.encode())]
    if admitted:
        Anthropic().check_headers(given, plan)
        return
    with pytest.raises(RefusedError, match="beta") as refused:
        Anthropic().check_headers(given, plan)
    assert refused.value.reason is RelayRefusal.HEADER


PRICES = TokenPrices(input=1, cached_input=1, cache_write=1, cache_write_1h=1, output=1)
NAMES = ["type", "content", "source", "file_id", "usage", "input_tokens", "message", "error"]
KINDS = ["text", "url", "image", "tool_result", "custom", "x"]


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return a strategy for lists and objects of ``inner``, with keys that the checks look at."""
    return st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.sampled_from(KINDS), nested, max_leaves=25)


@given(st.dictionaries(st.sampled_from(["tools", "messages", "system", "model", "x"]), JSON, max_size=4))
def test_checks_raise_refusals_alone(body: dict[str, Any]) -> None:
    """A body with any JSON values is admitted or refused. The check raises no exception except the refusal."""
    assert reason_of(GOOD | body) in {None, *RelayRefusal}


@given(st.dictionaries(st.sampled_from(["type", "message", "usage", "error"]), JSON, max_size=4))
def test_reading_raises_nothing(event: dict[str, Any]) -> None:
    """Any JSON that a provider sends is read without an exception."""
    for kind in ("message_start", "message_delta", "message_stop", "error"):
        Anthropic().read(event | {"type": kind})
    Anthropic().read_whole(event)
    Anthropic().error_trouble(400, event)
    assert Anthropic().read({"type": "content_block_delta"}) is NOTHING


@pytest.mark.parametrize(
    ("plan", "betas"),
    [
        (CLAUDE, [b"context-1m-2025-08-07, a-1", b"Fast-Mode-2026"]),
        (replace(CLAUDE, prices=PRICES), [b"a-1"]),
        (replace(CLAUDE, prices=PRICES, model="sonnet[1m]"), [b"context-1m-2025-08-07,a-1"]),
    ],
)
def test_betas_with_other_prices(plan: RelayPlan, betas: list[bytes]) -> None:
    """If the plan has prices, betas that change the prices are removed.

    The beta for a long context is kept if the configured model has the suffix ``[1m]``.
    """
    given = [
        (b"anthropic-beta", b"context-1m-2025-08-07, a-1"),
        (b"anthropic-beta", b"Fast-Mode-2026"),
    ]
    assert Anthropic().headers(given, plan) == [(b"anthropic-beta", beta) for beta in betas]
