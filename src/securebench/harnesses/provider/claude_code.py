"""Claude Code as an agent: ``claude -p``, with its events on stdout (``--output-format stream-json``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from securebench.egress.model import Provider, Trouble
from securebench.harnesses.provider.endpoints import ProviderFacts
from securebench.harnesses.provider.events import amount_of, number_of, object_of, objects_of, text_of
from securebench.harnesses.provider.harness import HOME, ProviderHarness, timeout_ms
from securebench.harnesses.provider.self_report import MAX_MESSAGE, MAX_TEXT, EventParser, trouble_of_status
from securebench.tester_config import ClaudeCodeConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.harnesses.provider.events import Event
    from securebench.harnesses.provider.harness import Call

_SYNTHETIC: Final = "<synthetic>"
"""The model name in messages that the program itself writes, such as errors."""

_SHOWN: Final = ("command", "file_path", "notebook_path", "pattern", "path", "query", "url", "prompt", "description")
"""The input fields that describe a tool call best, in order of preference."""

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


class ClaudeEventParser(EventParser):
    """Parses Claude Code's events. ``is_error`` tells whether it failed; ``subtype`` and the exit code do not."""

    def take(self, event: Event) -> None:
        """See :meth:`EventParser.take`."""
        match event.get("type"):
            case "system" if event.get("subtype") == "api_retry":
                self._fail(event.get("error"), _trouble(event.get("error_status")))
            case "assistant":
                self._take_answer(object_of(event.get("message")))
            case "user":
                self._take_results(object_of(event.get("message")))
            case "result":
                self._complete(event)

    def _take_answer(self, message: Event) -> None:
        if message.get("model") == _SYNTHETIC:
            return  # the result event repeats it, with a status
        self.self_report.answer()
        for block in objects_of(message.get("content")):
            match block.get("type"):
                case "text":
                    self._say(block.get("text"))
                case "thinking":
                    self.trajectory.add("thought", text=text_of(block.get("thinking"), MAX_TEXT))
                case "tool_use":
                    used, tool = object_of(block.get("input")), text_of(block.get("name"), MAX_TEXT)
                    self.trajectory.add("command", tool=tool, command=_shown(used))

    def _take_results(self, message: Event) -> None:
        for block in objects_of(message.get("content")):
            if block.get("type") == "tool_result":
                output, failed = _output(block.get("content")), block.get("is_error") is True
                self.trajectory.add("result", output=output, failed=failed)

    def _complete(self, event: Event) -> None:
        self_report, denials = self.self_report, event.get("permission_denials")
        self_report.turns = number_of(event.get("num_turns"))
        self_report.cost_usd = amount_of(event.get("total_cost_usd"))
        self_report.tokens = _tokens(object_of(event.get("usage")))
        self_report.denials = len(denials) if isinstance(denials, list) else 0
        self_report.failed = event.get("is_error") is not False
        self_report.finished = not self_report.failed
        self_report.refused = event.get("stop_reason") == "refusal"
        if self_report.failed:
            self._fail(event.get("result"), _trouble(event.get("api_error_status"), event.get("result")))
        else:
            self_report.answer()
            self_report.message = text_of(event.get("result"), MAX_MESSAGE) or self_report.message
        self.trajectory.add("usage", turns=self_report.turns, cost_usd=self_report.cost_usd, **self_report.tokens)


def _tokens(usage: Event) -> dict[str, int]:
    """Return the token counts. The program reports cached input separately; here it is included in the input."""
    if not usage:
        return {}
    cached, written = (
        number_of(usage.get("cache_read_input_tokens")),
        number_of(usage.get("cache_creation_input_tokens")),
    )
    return {
        "input_tokens": number_of(usage.get("input_tokens")) + cached + written,
        "cached_input_tokens": cached,
        "cache_write_input_tokens": written,
        "output_tokens": number_of(usage.get("output_tokens")),
    }


def _trouble(status: Any, message: Any = "API Error: Unable to connect") -> Trouble | None:
    """Return the trouble that a status means. Without a status, the message tells a failed connection."""
    if status is None:
        return Trouble.UNREACHABLE if text_of(message, MAX_TEXT).startswith("API Error: Unable to connect") else None
    return trouble_of_status(number_of(status))


def _shown(used: Event) -> str:
    return next((text for key in _SHOWN if (text := text_of(used.get(key), MAX_TEXT))), "")


def _output(content: Any) -> str:
    if isinstance(content, str):
        return text_of(content, MAX_TEXT)
    return "\n".join(text_of(part.get("text"), MAX_TEXT) for part in objects_of(content))[:MAX_TEXT]


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
