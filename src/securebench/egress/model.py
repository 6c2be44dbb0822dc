"""The egress plan of a task, and the reports on its egress: plain data, which is sent between processes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from securebench.limits import ProviderTimeouts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.money import TokenPrices


class Provider(StrEnum):
    """A provider's API that the relay supports."""

    OPENAI = "openai"
    """The Responses API."""
    ANTHROPIC = "anthropic"
    """The Messages API."""
    CHAT_COMPLETIONS = "chat_completions"
    """The Chat Completions API, which most other providers and model servers support."""
    GEMINI = "gemini"
    """Google's Gemini API."""


class KeyForm(StrEnum):
    """How a request carries the key."""

    USUAL = "usual"
    """In the usual header of the API."""
    BEARER = "bearer"
    """As a bearer token: for LLM gateways, and for access tokens of a cloud."""
    AZURE = "azure"
    """In the header ``api-key`` of Azure OpenAI, with the API version in the query."""


class Trouble(StrEnum):
    """Why a model request failed. Agents can forge this in a self-report, but not what a relay or a probe observes."""

    REJECTED = "rejected"
    """The provider rejected the request as invalid (for example, 400, 404, 413 or 422), or the relay refused it."""
    REFUSED = "refused"
    """The provider does not accept the key, or does not permit this request (for example, 401, 402 or 403)."""
    RATE_LIMITED = "rate_limited"
    """The provider's rate limit was exceeded (429)."""
    FAILED = "failed"
    """The provider failed: for example, with the status 408 or 5xx, a redirect, or an incomplete answer."""
    UNREACHABLE = "unreachable"
    """The provider could not be reached, or did not answer in time."""
    OUT_OF_BUDGET = "out_of_budget"
    """The task's own budget is used up."""
    DECLINED = "declined"
    """The model refused, or a policy of the provider (such as a safety filter) stopped the answer. Not an outage."""


PROVIDER_TROUBLES: Final = frozenset({Trouble.REFUSED, Trouble.RATE_LIMITED, Trouble.FAILED, Trouble.UNREACHABLE})
"""Troubles that may be the provider's fault. A probe by the gateway can show whether they are."""


_RELEASE_DATE: Final = re.compile(r"[-@][0-9]{8}$")

SENDABLE_KEY: Final = re.compile(r"[!-~]+")
"""The form of a key that an HTTP header can carry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayPlan:
    """How to reach one provider, and the limits for one trial of a task.

    ``base_url`` includes the API version if it has one (``https://host/v1``). ``key`` is added to each request, unless
    it is ``None``. ``ca_bundle`` is the PEM text of additional CA certificates: the text rather than a path, because
    the gateway process may be unable to read the file. ``proxy`` is the URL of an HTTP proxy, which may contain a
    password. ``micro_usd`` is the limit on the cost in millionths of a US dollar. With this limit, ``prices`` is
    required. ``api_version`` is added to the query of each request to Azure.
    """

    provider: Provider
    base_url: str
    key: str | None = field(repr=False)
    model: str
    provider_tools: bool = False
    requests: int
    tokens: int
    bytes: int
    micro_usd: int | None = None
    prices: TokenPrices | None = None
    model_prices: Mapping[str, TokenPrices] = field(default_factory=dict)
    """The prices of the models that an alias may stand for. Any other model costs :attr:`prices`.

    If :attr:`model` is an alias, no model in this mapping costs more than :attr:`prices`.
    """
    ca_bundle: str | None = None
    proxy: str | None = field(default=None, repr=False)
    key_form: KeyForm = KeyForm.USUAL
    api_version: str = ""
    timeouts: ProviderTimeouts = field(default_factory=ProviderTimeouts)
    spent_requests: int = 0
    """Requests of earlier tries and attempts of this trial, without those that failed because of the provider."""
    spent_tokens: int = 0
    """Tokens of earlier tries and attempts of this trial.

    ``spent_bytes`` and ``spent_micro_usd`` are the bytes and the cost of the same tries and attempts.
    """
    spent_bytes: int = 0
    spent_micro_usd: int = 0

    def prices_of(self, model: str) -> TokenPrices | None:
        """Return the prices for an answer of ``model``, or ``None`` if they are unknown.

        ``model`` is the model that the provider names in its answer, with or without a release date.
        """
        return self.model_prices.get(_RELEASE_DATE.sub("", model), self.prices)


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressPlan:
    """The egress of one task's sandbox. Without ``domains`` it has no proxy; without ``relay``, it has no relay."""

    domains: tuple[str, ...] = ()
    relay: RelayPlan | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayReport:
    """What a relay observed.

    ``answered`` counts the model requests that were answered completely. ``statuses`` counts the provider's responses
    by status. ``refused`` counts the requests that were not forwarded, by reason. ``trouble`` is why the last model
    request failed: ``None`` if it succeeded, or if there was no model request. A request that the agent broke off does
    not change ``trouble``. Once ``trouble`` is ``OUT_OF_BUDGET``, it does not change any more.
    """

    requests: int = 0
    forgiven: int = 0
    """Requests that failed because of the provider. The budget ignores up to :attr:`RelayPlan.requests` of them."""
    answered: int = 0
    model: str = ""
    """The model named in the last answered request."""
    models: Mapping[str, int] = field(default_factory=dict)
    """The number of complete answers by model, as named by the provider. Only the first 16 names are counted."""
    statuses: Mapping[str, int] = field(default_factory=dict)
    refused: Mapping[str, int] = field(default_factory=dict)
    input_tokens: int = 0
    output_tokens: int = 0
    bytes: int = 0
    micro_usd: int | None = None
    """The price of all answers in millionths of a US dollar; ``None`` if the prices are not known."""
    unreported_tokens: int = 0
    """The maximum number of tokens that incomplete answers may have used in addition to the other counts.

    The budget is charged for these tokens, too.
    """
    unreported_micro_usd: int = 0
    trouble: Trouble | None = None
    message: str = ""
    """A description of the trouble. It never quotes a response body."""
    retry_after: float | None = None
    """Seconds until the provider may be asked again, if its last error said so (``Retry-After``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReport:
    """How a provider answered the gateway's own test request. ``trouble`` is ``None`` if it succeeded.

    ``status`` is 0 if there was no response, or if the response could not be used, such as a redirect.
    ``model_unknown``: the provider does not have the model. ``is_foreign``: the server did not answer as the plan's
    API does, so the base URL may be wrong. ``is_connected`` is false if no connection could be made.
    """

    trouble: Trouble | None = None
    message: str = ""
    status: int = 0
    model_unknown: bool = False
    is_foreign: bool = False
    is_connected: bool = True
    input_tokens: int = 0
    output_tokens: int = 0
    retry_after: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressReport:
    """The egress of one task: proxy decisions by reason (including ``allowed``) and by host, and the relay's report.

    ``bytes`` counts what the proxy carried.
    """

    decisions: Mapping[str, int] = field(default_factory=dict)
    hosts: Mapping[str, int] = field(default_factory=dict)
    bytes: int = 0
    relay: RelayReport | None = None
