"""The command line and variables of Claude Code are those that were tried with the real program."""

from __future__ import annotations

from typing import Any

import pytest

from securebench.harnesses.provider.events.claude_code import ClaudeEventParser
from securebench.harnesses.provider.harness import Call, ProviderHarness
from securebench.tester_config import ProviderSettings

CALL = Call(
    executable="/opt/securebench/programs/claude",
    base_url="http://127.0.0.1:8788/v1",
    key_name="ANTHROPIC_API_KEY",
    prompt="Do it.",
)
ARGV = (
    "/opt/securebench/programs/claude",
    "--print",
    "--output-format",
    "stream-json",
    "--verbose",
    "--dangerously-skip-permissions",
    "--setting-sources",
    "",
    "--strict-mcp-config",
    "--disallowedTools",
    "WebSearch,WebFetch",
    "--model",
    "sonnet",
    "--",
    "Do it.",
)


def claude(model: str = "sonnet", **config: Any) -> ProviderHarness:
    """Return the harness of Claude Code."""
    return ProviderHarness("claude_code", ProviderSettings(model=model, **config))


def test_the_command_line() -> None:
    """The command line has exactly the arguments whose effects were verified with version 2.1.197."""
    assert claude().argv(CALL) == ARGV


def test_provider_tools_are_the_testers_choice() -> None:
    """Claude Code's web search and fetch are disabled unless the tester sets ``provider_tools``."""
    argv = claude(provider_tools=True).argv(CALL)
    assert argv == ARGV[:9] + ARGV[11:]


def test_its_variables() -> None:
    """The variables set the URL (without ``/v1``) and models, permit root, limit retries and disable extra traffic."""
    harness = claude("claude-x")
    assert harness.settings(CALL) == {
        "IS_SANDBOX": "1",
        "ANTHROPIC_BASE_URL": "http://127.0.0.1:8788",
        "CLAUDE_CODE_SUBAGENT_MODEL": "claude-x",
        "ANTHROPIC_SMALL_FAST_MODEL": "claude-x",
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": "claude-x",
        "CLAUDE_CODE_MAX_RETRIES": "5",
        "API_TIMEOUT_MS": "3660000",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_IDE_SKIP_AUTO_INSTALL": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_TELEMETRY": "1",
    }
    assert isinstance(harness.parser(), ClaudeEventParser)


@pytest.mark.parametrize("alias", ["sonnet", "opus[1m]"])
def test_an_alias_stands_only_where_the_program_resolves_it(alias: str) -> None:
    """An alias is not set as the model of small requests: Claude Code would send it to the provider unresolved."""
    settings = claude(alias).settings(CALL)
    assert settings["CLAUDE_CODE_SUBAGENT_MODEL"] == alias
    assert "ANTHROPIC_SMALL_FAST_MODEL" not in settings
    assert "ANTHROPIC_DEFAULT_HAIKU_MODEL" not in settings
