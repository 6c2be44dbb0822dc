"""Claude Code as an agent: ``claude -p``, with its events on stdout."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from securebench.egress.model import Provider
from securebench.harnesses.provider.claude_events import ClaudeEventParser
from securebench.harnesses.provider.endpoints import ProviderFacts
from securebench.harnesses.provider.harness import HOME, ProviderHarness, timeout_ms
from securebench.tester_config import ClaudeCodeConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.harnesses.provider.harness import Call

_RETRIES: Final = "5"
"""Retries of a request, about half a minute. The program's own default is many minutes."""

_QUIET: Final = (
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
    "CLAUDE_CODE_IDE_SKIP_AUTO_INSTALL",
    "DISABLE_AUTOUPDATER",
    "DISABLE_ERROR_REPORTING",
    "DISABLE_TELEMETRY",
)
"""Switches off features that connect to other hosts."""

_ALIASES: Final = frozenset({"best", "default", "fable", "haiku", "opus", "opusplan", "sonnet"})
"""Aliases that the program resolves to a model, except in the variable for its small requests."""

_PROVIDER_TOOLS: Final = "WebSearch,WebFetch"
"""Tools that run at the provider or connect to other hosts."""


class ClaudeCodeHarnessProducer(ProviderHarness):
    """Runs Claude Code with all tools allowed. Provider tools need ``provider_tools: true``.

    It reads no settings files and starts no server that a repository configures.
    """

    name = "claude_code"
    settings_model = ClaudeCodeConfig
    facts: ClassVar[ProviderFacts] = ProviderFacts(
        provider=Provider.ANTHROPIC,
        base_url="https://api.anthropic.com/v1",
        key_names=("ANTHROPIC_API_KEY",),
    )

    def argv(self, call: Call) -> tuple[str, ...]:
        """See :meth:`ProviderHarness.argv`."""
        return (
            call.executable,
            "--print",
            "--output-format",
            "stream-json",
            "--verbose",
            "--dangerously-skip-permissions",
            "--setting-sources",
            "",
            "--strict-mcp-config",
            *(() if self.config.provider_tools else ("--disallowedTools", _PROVIDER_TOOLS)),
            "--model",
            self.config.model,
            "--",
            call.prompt,
        )

    def settings(self, call: Call) -> Mapping[str, str]:
        """See :meth:`ProviderHarness.settings`. Without ``IS_SANDBOX`` it refuses to work as root."""
        model = self.config.model
        is_alias = model.removesuffix("[1m]") in _ALIASES
        small = ("ANTHROPIC_SMALL_FAST_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL")
        return {
            "HOME": HOME,
            "IS_SANDBOX": "1",
            "ANTHROPIC_BASE_URL": call.base_url.removesuffix("/v1"),  # the program appends the version
            "CLAUDE_CODE_SUBAGENT_MODEL": model,
            **({} if is_alias else dict.fromkeys(small, model)),
            "CLAUDE_CODE_MAX_RETRIES": _RETRIES,
            # Longer than the relay's timeout, so that the relay records why there was no answer.
            "API_TIMEOUT_MS": str(timeout_ms(self.config.provider_timeouts.whole_answer)),
            **dict.fromkeys(_QUIET, "1"),
        }

    def parser(self) -> ClaudeEventParser:
        """See :meth:`ProviderHarness.parser`."""
        return ClaudeEventParser()
