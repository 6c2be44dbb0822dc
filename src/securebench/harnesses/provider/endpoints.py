"""The provider endpoint of an agent, and who holds its key."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from securebench.egress.gateway import RELAY_PORT
from securebench.egress.model import SENDABLE_KEY, EgressPlan, KeyForm, Provider, RelayPlan
from securebench.egress.relay.providers import dialect_of
from securebench.errors import ConfigError, Problem
from securebench.harnesses.base import Spent
from securebench.limits import ProviderTimeouts
from securebench.money import TokenPrices, micro_usd
from securebench.strict_input.faults import similar
from securebench.tester_config import own_price_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.resources import JsonValue
    from securebench.tester_config import Budget, Prices, PriceTable, ProviderSettings

PLACEHOLDER: Final = "held-outside-the-sandbox"
"""The value of the key variables in a sandbox if a relay holds the real key, or if there is no key."""

NO_PROXY: Final = dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")
"""Variables that make programs connect to the relay directly, even if the image configures a proxy."""

_AZURE_APIS: Final = frozenset({Provider.OPENAI, Provider.CHAT_COMPLETIONS})
_AZURE_NAMES: Final = ("AZURE_OPENAI_API_KEY",)
_BEARER_NAMES: Final = {Provider.ANTHROPIC: ("ANTHROPIC_AUTH_TOKEN",)}

_SUBSCRIPTION: Final = "sk-ant-oat"
"""The prefix of tokens of a Claude subscription. Anthropic does not permit these tokens in a relay or for probes."""

_SUBSCRIPTION_NAME: Final = "CLAUDE_CODE_OAUTH_TOKEN"
"""The environment variable that usually contains the token of a Claude subscription."""

_CLOUDS: Final = ("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "GOOGLE_GENAI_USE_VERTEXAI")
"""The variables that make a program use a cloud, with the program's own credentials."""

RELAY: Final = "relay"
PASSTHROUGH: Final = "passthrough"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderFacts:
    """A provider's public endpoint, including the API version, and the variables that may contain its key."""

    provider: Provider
    base_url: str
    key_names: tuple[str, ...]

    def with_auth(self, auth: str | None) -> ProviderFacts:
        """Return a copy in which ``key_names`` starts with the environment variables for keys of the form ``auth``.

        Raises :class:`ConfigError` (``auth-unfit``) if ``auth`` is ``azure`` and Azure does not have this provider's
        API.
        """
        if auth == KeyForm.AZURE and self.provider not in _AZURE_APIS:
            raise ConfigError(
                "'auth: azure' works only with the APIs 'responses' and 'chat_completions'",
                code="auth-unfit",
                hint="remove 'auth' from the settings of the endpoint",
            )
        own = {KeyForm.AZURE: _AZURE_NAMES, KeyForm.BEARER: _BEARER_NAMES.get(self.provider, ())}
        return replace(self, key_names=(*own.get(KeyForm(auth or KeyForm.USUAL), ()), *self.key_names))


@dataclass(frozen=True, slots=True)
class ProviderKey:
    """A provider's key and the variable it came from. An empty value means that there is no key."""

    name: str
    value: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostNetwork:
    """How the gateway reaches a provider from this machine: an additional CA bundle in PEM, and the URL of a proxy."""

    ca_bundle: str | None = None
    proxy: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderEndpoint:
    """The provider endpoint of one configuration, and what an agent may use of it.

    ``is_own``: it is the provider's public endpoint, not another server with the same API. ``needs_key``: a missing key
    is an error. ``place`` is where the tester YAML configures it.
    """

    facts: ProviderFacts
    base_url: str
    is_own: bool
    needs_key: bool
    credentials: str
    auth: str | None = None
    api_version: str | None = None
    cloud: str = ""
    """The environment variable that makes the agent use a cloud, or empty if the agent uses no cloud."""
    place: str
    model: str
    provider_tools: bool
    budget: Budget
    prices: Prices | None
    model_prices: Mapping[str, Prices] = field(default_factory=dict)
    """The prices of the models that the alias ``model`` may stand for, by their names."""
    price_date: str = ""
    """The date of the price table, or empty if none was used, for example because the tester YAML has prices."""
    price_fault: str = ""
    """Why the prices are unknown. It has no meaning if they are known."""
    timeouts: ProviderTimeouts
    allowed_domains: tuple[str, ...]

    @property
    def host(self) -> str:
        """The host name. It is empty for a cloud, whose host only the agent knows."""
        return "" if self.cloud else urlsplit(self.base_url).hostname or ""

    @property
    def is_relayed(self) -> bool:
        """Whether a relay holds the key."""
        return self.credentials == RELAY

    @property
    def agent_url(self) -> str:
        """The base URL for the agent, including the API version."""
        return f"http://127.0.0.1:{RELAY_PORT}/v1" if self.is_relayed else self.base_url

    @property
    def url_hint(self) -> str:
        """The hint if an answer from the server at the base URL does not match the configured API."""
        if self.is_own:
            return f"check {self.place}.model"
        version = {Provider.GEMINI: "/v1beta", Provider.ANTHROPIC: ""}.get(self.facts.provider, "/v1")
        question = "" if self.base_url.rstrip("/").endswith(version) else f": should it end in {version}?"
        return f"check {self.place}.base_url{question}"

    def with_cloud(self, variables: Mapping[str, str]) -> ProviderEndpoint:
        """Return the endpoint with the cloud that the tester's variables choose, if any."""
        has_key = any(variables.get(name, "").strip() for name in self.facts.key_names)
        if self.is_relayed or has_key:
            return self
        return replace(self, cloud=next((name for name in _CLOUDS if variables.get(name, "").strip()), ""))

    def key(self, variables: Mapping[str, str]) -> ProviderKey:
        """Return the key among the tester's variables.

        A missing key is an error, unless the endpoint needs no key or the agent uses a cloud (:attr:`cloud`). In these
        two cases, the returned key has an empty value.

        Raises :class:`ConfigError` (``env-missing``, ``key-malformed``, ``subscription-token``).
        """
        names = self.facts.key_names
        found = next((ProviderKey(name, value) for name in names if (value := variables.get(name, "").strip())), None)
        is_missing = found is None and self.needs_key and not self.cloud
        has_token = self.facts.provider is Provider.ANTHROPIC and bool(variables.get(_SUBSCRIPTION_NAME))
        if (found and found.value.startswith(_SUBSCRIPTION)) or (is_missing and has_token):
            raise ConfigError(
                f"{found.name if found else _SUBSCRIPTION_NAME} is the token of a Claude subscription, "
                "which may only be used by Anthropic's own programs",
                code="subscription-token",
                hint=f"set {names[-1]} to an API key instead",
            )
        if is_missing:
            raise ConfigError(
                f"the provider key is missing: {' or '.join(names)} must be set",
                code="env-missing",
                hint="set the variable in the environment or in the env file"
                + ("; the key stays outside the sandboxes" if self.is_relayed else ""),
            )
        if found and not SENDABLE_KEY.fullmatch(found.value):
            raise ConfigError(
                f"the value of {found.name} is not a key: it has a space, or a character that no HTTP header can carry",
                code="key-malformed",
                hint=f"set {found.name} to the key alone, without quotes, spaces or line breaks",
            )
        return found or ProviderKey(names[0], "")

    def plan(self, key: ProviderKey, network: HostNetwork | None = None, spent: Spent | None = None) -> EgressPlan:
        """Return the egress plan of one try of a task. ``spent`` is what earlier tries used of the task's budget.

        With a relay, the provider's host is not added to the allowed domains: an agent with a key of its own could use
        that host to exfiltrate what it read.
        """
        if not self.is_relayed:
            return EgressPlan(domains=tuple(dict.fromkeys(filter(None, (*self.allowed_domains, self.host)))))
        relay, before = self.relay_plan(key, network), spent or Spent()
        relay = replace(
            relay,
            spent_requests=before.requests,
            spent_tokens=before.tokens,
            spent_bytes=before.bytes,
            spent_micro_usd=before.micro_usd,
        )
        return EgressPlan(domains=self.allowed_domains, relay=relay)

    def relay_plan(self, key: ProviderKey, network: HostNetwork | None = None) -> RelayPlan:
        """Return the relay's part of the egress plan. The gateway also uses this part for its own probes."""
        if self.budget.usd is not None and self.token_prices is None:  # the relay could not enforce it
            raise AssertionError("call priced() first")
        network = network or HostNetwork()
        return RelayPlan(
            provider=self.facts.provider,
            base_url=self.base_url,
            key=key.value or None,
            model=self.model,
            provider_tools=self.provider_tools,
            requests=self.budget.requests,
            tokens=self.budget.tokens,
            bytes=self.budget.bytes,
            micro_usd=None if self.budget.usd is None else micro_usd(self.budget.usd),
            prices=self.token_prices,
            model_prices={name: prices.exact() for name, prices in self.model_prices.items()},
            ca_bundle=network.ca_bundle,
            proxy=network.proxy,
            timeouts=self.timeouts,
            key_form=KeyForm(self.auth or KeyForm.USUAL),
            api_version=self.api_version or "",
        )

    @property
    def token_prices(self) -> TokenPrices | None:
        """The prices of the model: for an alias, the highest prices of its models. ``None`` if they are unknown."""
        known = [prices.exact() for prices in (self.prices, *self.model_prices.values()) if prices]
        return TokenPrices.highest(known) if known else None

    def priced(self, table: PriceTable | None) -> ProviderEndpoint:
        """Return the endpoint with the model's prices in ``table``. ``None`` means SecureBench's own table.

        Prices in the tester YAML take precedence. Without a relay, neither table is used. SecureBench's table is only
        for the provider's public endpoint: other endpoints set their own prices. An alias that only the agent program
        resolves gets the prices of every model that it may mean.
        """
        if not self.is_relayed or self.prices:
            return self
        if table is None and not self.is_own:
            fault = f"SecureBench's price table covers only providers' public endpoints, not {self.host}"
            return replace(self, price_fault=fault)
        name = "SecureBench's price table" if table is None else "the price table"
        table = table or own_price_table()
        is_alias = partial(dialect_of(self.facts.provider).is_alias, self.model)
        by_model = {model: prices for model, prices in table.models.items() if is_alias(model)}
        near = similar(self.model, table.models, most=3)
        fault = f"the model is not in {name} of {table.date}" + (f" (similar: {', '.join(near)})" if near else "")
        return replace(
            self,
            prices=table.models.get(self.model),
            model_prices=by_model,
            price_date=table.date,
            price_fault=fault,
        )

    def cost_fault(self) -> Problem | None:
        """Return the problem that prevents counting the cost of an agent, or ``None`` if there is none."""
        if not self.is_relayed:
            why, fix = "with 'credentials: passthrough', no relay counts tokens", "remove 'credentials: passthrough'"
        elif self.provider_tools:
            why = "the relay does not see the fees of the tools that 'provider_tools' allows"
            fix = "remove 'provider_tools'"
        elif self.token_prices:
            return None
        else:
            why = f"the price of the model {self.model} is unknown: {self.price_fault}"
            fix = (
                "set 'prices: {input: 0.25, output: 2.00}' next to 'model' (US dollars per million tokens), or pass a "
                "--price-table that has the model"
            )
        return Problem("price-missing", why, hint=f"{fix}; or remove the budget")

    def warning(self) -> str:
        """Return a warning about this configuration, or an empty string."""
        admitting = [name for name in self.allowed_domains if self.host == name or self.host.endswith(f".{name}")]
        if not self.is_relayed or not admitting:
            return ""
        return (
            f"harness.config.allowed_domains: {admitting[0]} lets agents reach {self.host} without the relay: with "
            "their own key they can use any model and exfiltrate what they read"
        )

    def identity(self) -> dict[str, JsonValue]:
        """Return this endpoint's part of the run's identity."""
        return {
            "provider": self.facts.provider.value,
            "endpoint": self.host or self.cloud,
            "model": self.model,
            "credentials": self.credentials,
            **({"auth": self.auth} if self.auth else {}),
            "provider_tools": self.provider_tools if self.is_relayed else True,
            **self._price_identity(),
            "assurance": "the key is outside the sandbox; a relay bounds and sees all requests"
            if self.is_relayed
            else "lower: the key is in the sandbox, nothing bounds requests, and outcomes are as the agent tells them",
        }

    def _price_identity(self) -> dict[str, JsonValue]:
        if self.token_prices is None:
            return {}
        date = {"date": self.price_date} if self.price_date else {}
        own = self.prices.model_dump(exclude_none=True) if self.prices else {}
        by_model: dict[str, JsonValue] = {
            name: prices.model_dump(exclude_none=True) for name, prices in self.model_prices.items()
        }
        return {"prices": {**own, **({"models": by_model} if by_model else {}), **date}}

    def key_variables(self, given: Mapping[str, str], key: ProviderKey) -> dict[str, str]:
        """Return the sandbox's key variables. ``given`` are the variables of ``harness.env``.

        If a relay holds the key, the values are placeholders: for the variable that the key came from, and for each
        variable in ``given`` that usually contains a key or that contains this key.
        """
        if not self.is_relayed:
            return {} if self.cloud else {key.name: key.value or PLACEHOLDER}
        holding = {name for name, value in given.items() if key.value and key.value in value}
        return dict.fromkeys(sorted({key.name} | holding | (given.keys() & set(self.facts.key_names))), PLACEHOLDER)


def endpoint_of(facts: ProviderFacts, config: ProviderSettings) -> ProviderEndpoint:
    """Return the endpoint of a declared agent's configuration."""
    return ProviderEndpoint(
        facts=facts.with_auth(config.auth),
        base_url=(config.base_url or facts.base_url).rstrip("/"),
        is_own=config.base_url is None,
        needs_key=config.base_url is None or config.auth is not None,
        credentials=config.credentials,
        auth=config.auth,
        api_version=config.api_version,
        place="harness.config",
        model=config.model,
        provider_tools=config.provider_tools,
        budget=config.budget,
        prices=config.prices,
        timeouts=ProviderTimeouts(**config.provider_timeouts.model_dump()),
        allowed_domains=config.allowed_domains,
    )
