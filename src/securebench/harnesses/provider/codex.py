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
"""The endpoint's name in Codex's configuration. The address of its built-in provider cannot be changed."""

_RETRIES: Final = {"request_max_retries": 3, "stream_max_retries": 4}
"""Retries before Codex gives up on its provider: less than a minute."""

_OFF: Final = ("plugins", "apps", "unbounded_connection_retries")
"""Features that connect to other hosts, and one that waits for a lost network without limit."""

_QUIET: Final = ("analytics.enabled=false", 'otel.metrics_exporter="none"', "check_for_update_on_startup=false")


class CodexHarnessProducer(ProviderHarness):
    """Runs Codex without its own sandbox, which cannot work inside SecureBench's and fails silently there.

    The provider-side web search is off unless ``provider_tools`` is set.
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
        """See :meth:`ProviderHarness.settings`. Codex does not create its state directory, so this uses its home."""
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
            # Longer than the relay's timeout, so that the relay records why there was no answer.
            "stream_idle_timeout_ms": timeout_ms(max(timeouts.first_byte, timeouts.between_bytes)),
        }


def _toml(value: str | int) -> str:
    """Return ``value`` as TOML. JSON strings are valid TOML basic strings, except for DEL, which never occurs here."""
    return json.dumps(value, ensure_ascii=False)
