"""Where an agent's provider is, and who holds the key to it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from securebench.egress.model import EgressPlan, Provider, RelayPlan
from securebench.errors import ConfigError
from securebench.harnesses.base import Spent
from securebench.limits import ProviderTimeouts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.tester_config import ProviderSettings

PLACEHOLDER: Final = "held-outside-the-sandbox"
"""What a sandbox has for a key where a relay holds it."""

RELAY: Final = "relay"
PASSTHROUGH: Final = "passthrough"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderFacts:
    """What is known of a provider: its own endpoint with the version, and the variables that a key may stand in."""

    provider: Provider
    base_url: str
    key_names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ProviderKey:
    """A provider's key, and the name of the variable that it was found in. An empty value is none."""

    name: str
    value: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderEndpoint:
    """The way to a provider of one configuration."""

    facts: ProviderFacts
    base_url: str
    is_own: bool
    """Whether it is the provider's own, and no other that speaks like it."""
    credentials: str

    @property
    def host(self) -> str:
        """Its host."""
        return urlsplit(self.base_url).hostname or ""

    @property
    def is_relayed(self) -> bool:
        """Whether a relay holds the key."""
        return self.credentials == RELAY

    def key(self, variables: Mapping[str, str]) -> ProviderKey:
        """Return the key among the tester's variables. Raises :class:`ConfigError` (``env-missing``).

        An endpoint other than the provider's own may do without one.
        """
        names = self.facts.key_names
        found = next((ProviderKey(name, value) for name in names if (value := variables.get(name, "").strip())), None)
        if found is None and self.is_own:
            raise ConfigError(
                f"the provider's key is missing: {' or '.join(names)} is not set",
                code="env-missing",
                hint="set it in the environment or in the env file; it stays outside of sandboxes"
                if self.is_relayed
                else "set it in the environment or in the env file",
            )
        return found or ProviderKey(names[0], "")

    def plan(
        self, config: ProviderSettings, key: ProviderKey, authority: str | None = None, spent: Spent | None = None
    ) -> EgressPlan:
        """Return the way out of one try at a task. ``authority`` is one more for the relay's TLS, in PEM.

        ``spent`` is what earlier tries used of the task's budget.

        The relay's provider is not among the domains of the proxy: through it an agent with a key of its own could take
        out what it read.
        """
        if not self.is_relayed:
            return EgressPlan(domains=tuple(dict.fromkeys((*config.allowed_domains, self.host))))
        relay, before = self.relay_plan(config, key, authority), spent or Spent()
        relay = replace(relay, spent_requests=before.requests, spent_tokens=before.tokens, spent_bytes=before.bytes)
        return EgressPlan(domains=config.allowed_domains, relay=relay)

    def relay_plan(self, config: ProviderSettings, key: ProviderKey, authority: str | None = None) -> RelayPlan:
        """Return the way to the provider alone: for the relay of a task, and for the gateway's own questions."""
        budget = config.budget
        return RelayPlan(
            provider=self.facts.provider,
            base_url=self.base_url,
            key=key.value or None,
            model=config.model,
            provider_tools=config.provider_tools,
            requests=budget.requests,
            tokens=budget.tokens,
            bytes=budget.bytes,
            authority=authority,
            timeouts=ProviderTimeouts(**config.provider_timeouts.model_dump()),
        )

    def warning(self, config: ProviderSettings) -> str:
        """Return what a tester should know of this configuration, or nothing."""
        admitting = [name for name in config.allowed_domains if self.host == name or self.host.endswith(f".{name}")]
        if not self.is_relayed or not admitting:
            return ""
        return (
            f"harness.config.allowed_domains: {admitting[0]} lets agents reach {self.host} past the relay: with a key "
            "of their own they can ask whatever model they like, and take out what they read"
        )

    def key_variables(self, given: Mapping[str, str], key: ProviderKey) -> dict[str, str]:
        """Return the variables of the sandbox that have to do with the key. ``given`` are those of ``harness.env``.

        Where a relay holds the key, a placeholder stands in its usual place, and wherever else it was given.
        """
        if not self.is_relayed:
            return {key.name: key.value or PLACEHOLDER}
        holding = {name for name, value in given.items() if key.value and key.value in value}
        return dict.fromkeys(sorted({key.name} | holding | (given.keys() & set(self.facts.key_names))), PLACEHOLDER)


def endpoint_of(facts: ProviderFacts, config: ProviderSettings) -> ProviderEndpoint:
    """Return the endpoint that a configuration means."""
    return ProviderEndpoint(
        facts=facts,
        base_url=(config.base_url or facts.base_url).rstrip("/"),
        is_own=config.base_url is None,
        credentials=config.credentials,
    )
