"""The Codex CLI as an agent: ``codex exec``, with its events on stdout."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, ClassVar, Final

from securebench.egress.model import Provider
from securebench.harnesses.provider.codex_events import CodexEventParser
from securebench.harnesses.provider.endpoints import ProviderFacts
from securebench.harnesses.provider.harness import HOME, ProviderHarness, timeout_ms
from securebench.tester_config import CodexConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.harnesses.provider.harness import Call

_PROVIDER: Final = "securebench"
"""What the endpoint is called in its configuration. Its built-in provider would not take the address of another."""

_RETRIES: Final = {"request_max_retries": 3, "stream_max_retries": 4}
"""What it does before it gives up on its provider: less than a minute of trying."""

_OFF: Final = ("plugins", "apps", "unbounded_connection_retries")
"""Features that ask other hosts, and one that waits for a lost network until the end of time."""

_QUIET: Final = ("analytics.enabled=false", 'otel.metrics_exporter="none"', "check_for_update_on_startup=false")


class CodexHarnessProducer(ProviderHarness):
    """Runs Codex without its own sandbox, which cannot work in ours, and says nothing where it does not.

    The provider-side web search is off unless ``provider_tools`` admits it.
    """

    name = "codex"
    settings_model = CodexConfig
    facts: ClassVar[ProviderFacts] = ProviderFacts(
        provider=Provider.OPENAI,
        base_url="https://api.openai.com/v1",
        key_names=("OPENAI_API_KEY", "CODEX_API_KEY"),
    )

    def argv(self, call: Call) -> tuple[str, ...]:
        """See :meth:`ProviderHarness.argv`."""
        search = "live" if self.config.provider_tools else "disabled"
        settings = (
            f"model_provider={_toml(_PROVIDER)}",
            *(f"model_providers.{_PROVIDER}.{name}={_toml(value)}" for name, value in self._provider(call).items()),
            f"web_search={_toml(search)}",
            *_QUIET,
            *(f"features.{name}=false" for name in _OFF),
        )
        return (
            call.executable,
            "exec",
            "--json",
            "--skip-git-repo-check",
            "--dangerously-bypass-approvals-and-sandbox",
            "--model",
            self.config.model,
            *(part for setting in settings for part in ("-c", setting)),
            "--",
            call.prompt,
        )

    def settings(self, call: Call) -> Mapping[str, str]:
        """See :meth:`ProviderHarness.settings`. Where it keeps its state, it does not make by itself: home is there."""
        del call
        return {"HOME": HOME, "CODEX_HOME": HOME}

    def parser(self) -> CodexEventParser:
        """See :meth:`ProviderHarness.parser`."""
        return CodexEventParser()

    def _provider(self, call: Call) -> dict[str, str | int]:
        timeouts = self.config.provider_timeouts
        return {
            "name": _PROVIDER,
            "base_url": call.base_url,
            "env_key": call.key_name,
            "wire_api": "responses",
            **_RETRIES,
            # Longer than the relay waits, so that it is the relay that knows why there was no answer.
            "stream_idle_timeout_ms": timeout_ms(max(timeouts.first_byte, timeouts.between_bytes)),
        }


def _toml(value: str | int) -> str:
    """Return ``value`` as TOML: its basic strings take what JSON's do, but for DEL, which no setting of ours holds."""
    return json.dumps(value, ensure_ascii=False)
