"""The provider that a tester configures for a command, a plain model or the judge model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from securebench.egress.model import Provider
from securebench.harnesses.provider.endpoints import NO_PROXY, PLACEHOLDER, RELAY, ProviderEndpoint, ProviderFacts
from securebench.limits import ProviderTimeouts

if TYPE_CHECKING:
    from securebench.tester_config import CommandProvider, ModelProvider

_OPENAI: Final = "https://api.openai.com/v1"
_ANTHROPIC: Final = "https://api.anthropic.com/v1"
_GEMINI: Final = "https://generativelanguage.googleapis.com/v1beta"
_APPENDED: Final = frozenset({"gemini", "messages"})
"""The dialects whose clients append the API version to the base URL."""


_FACTS: Final = {
    "responses": ProviderFacts(provider=Provider.OPENAI, base_url=_OPENAI, key_names=("OPENAI_API_KEY",)),
    "chat_completions": ProviderFacts(
        provider=Provider.CHAT_COMPLETIONS, base_url=_OPENAI, key_names=("OPENAI_API_KEY",)
    ),
    "messages": ProviderFacts(provider=Provider.ANTHROPIC, base_url=_ANTHROPIC, key_names=("ANTHROPIC_API_KEY",)),
    "gemini": ProviderFacts(provider=Provider.GEMINI, base_url=_GEMINI, key_names=("GEMINI_API_KEY", "GOOGLE_API_KEY")),
}


def dialect_facts(dialect: str, key_names: tuple[str, ...] = ()) -> ProviderFacts:
    """Return the public endpoint of a dialect. ``key_names`` replace the names of its usual key variables."""
    usual = _FACTS[dialect]
    return replace(usual, key_names=key_names) if key_names else usual


def model_endpoint(provider: ModelProvider, place: str, allowed_domains: tuple[str, ...]) -> ProviderEndpoint:
    """Return the endpoint of a provider that the tester YAML configures at ``place``.

    The key is optional only if ``base_url`` is configured without ``api_key_env`` and ``auth``.
    """
    named = provider.api_key_env
    facts = dialect_facts(provider.dialect).with_auth(provider.auth)
    facts = facts if named is None else replace(facts, key_names=(named,))
    return ProviderEndpoint(
        facts=facts,
        base_url=provider.base_url or facts.base_url,
        is_own=provider.base_url is None,
        needs_key=provider.base_url is None or named is not None or provider.auth is not None,
        credentials=RELAY,
        auth=provider.auth,
        api_version=provider.api_version,
        place=place,
        model=provider.model,
        provider_tools=provider.provider_tools,
        budget=provider.budget,
        prices=provider.prices,
        timeouts=ProviderTimeouts(**provider.timeouts.model_dump()),
        allowed_domains=allowed_domains,
    )


def command_variables(provider: CommandProvider, endpoint: ProviderEndpoint) -> dict[str, str]:
    """Return the variables that give a command the base URL, a placeholder for the key, the model and the effort."""
    url = endpoint.agent_url
    if provider.dialect in _APPENDED:
        url = url.removesuffix("/v1")
    return {
        **NO_PROXY,
        provider.base_url_variable: url,
        provider.api_key_variable: PLACEHOLDER,
        provider.model_variable: provider.model,
        **({provider.effort_variable: provider.effort} if provider.effort else {}),
    }
