"""The command line and variables of Codex are those that were tried with the real program."""

from __future__ import annotations

import itertools
import tomllib
from typing import Any

import pytest

from securebench.harnesses.provider.events.codex import CodexEventParser
from securebench.harnesses.provider.harness import HOME, Call, ProviderHarness
from securebench.tester_config import ProviderSettings

CALL = Call(
    executable="/opt/securebench/programs/bin/codex",
    base_url="http://127.0.0.1:8788/v1",
    key_name="OPENAI_API_KEY",
    prompt="Do it.",
)


def codex(**config: Any) -> ProviderHarness:
    """Return the harness of Codex."""
    return ProviderHarness("codex", ProviderSettings(**config))


def settings_of(argv: tuple[str, ...]) -> list[str]:
    """Return the values of all ``-c`` options."""
    return [value for flag, value in itertools.pairwise(argv) if flag == "-c"]


def test_the_command_line() -> None:
    """The command line has exactly the arguments whose effects were verified with version 0.169."""
    assert codex(model="gpt-x").argv(CALL) == (
        "/opt/securebench/programs/bin/codex",
        "exec",
        "--json",
        "--skip-git-repo-check",
        "--dangerously-bypass-approvals-and-sandbox",
        "--model",
        "gpt-x",
        *("-c", 'model_provider="securebench"'),
        *("-c", 'model_providers.securebench.name="securebench"'),
        *("-c", 'model_providers.securebench.base_url="http://127.0.0.1:8788/v1"'),
        *("-c", 'model_providers.securebench.env_key="OPENAI_API_KEY"'),
        *("-c", 'model_providers.securebench.wire_api="responses"'),
        *("-c", "model_providers.securebench.request_max_retries=3"),
        *("-c", "model_providers.securebench.stream_max_retries=4"),
        *("-c", "model_providers.securebench.stream_idle_timeout_ms=660000"),
        *("-c", 'web_search="disabled"'),
        *("-c", "analytics.enabled=false"),
        *("-c", 'otel.metrics_exporter="none"'),
        *("-c", "check_for_update_on_startup=false"),
        *("-c", "features.plugins=false"),
        *("-c", "features.apps=false"),
        *("-c", "features.unbounded_connection_retries=false"),
        "--",
        "Do it.",
    )


def test_provider_tools_are_the_testers_choice() -> None:
    """The provider's web search is on if the tester sets ``provider_tools``."""
    argv = codex(model="m", provider_tools=True).argv(CALL)
    assert 'web_search="live"' in settings_of(argv)


@pytest.mark.parametrize("url", ["https://models.example.com/v1", "http://[::1]:8000/a~b"])
def test_every_setting_is_toml(url: str) -> None:
    """Each ``-c`` value is valid TOML with the intended meaning: Codex would take an invalid one for plain text."""
    call = Call(executable="codex", base_url=url, key_name="K", prompt="p")
    read = tomllib.loads("\n".join(settings_of(codex(model="m").argv(call))))
    assert read["model_providers"]["securebench"]["base_url"] == url
    assert read["features"]["unbounded_connection_retries"] is False


def test_its_state_is_kept_at_home() -> None:
    """Codex keeps its state in the home directory, because it needs an existing directory outside ``/tmp``."""
    harness = codex(model="m")
    assert harness.settings(CALL) == {"CODEX_HOME": HOME}
    assert isinstance(harness.parser(), CodexEventParser)


def test_a_model_is_an_argument_of_its_own() -> None:
    """A21: the name of a model is one argument, and never another option or part of a shell command."""
    unchecked = ProviderSettings.model_construct(model='x"; rm -rf /')
    argv = ProviderHarness("codex", unchecked).argv(CALL)
    assert argv[argv.index("--model") + 1] == 'x"; rm -rf /'
    assert [argument for argument in argv if "rm -rf" in argument] == ['x"; rm -rf /']
