"""What a task's way out is made of, and what is known of its use afterwards. Plain data, which crosses a process."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from securebench.limits import ProviderTimeouts

if TYPE_CHECKING:
    from collections.abc import Mapping


class Provider(StrEnum):
    """Whose API a relay speaks."""

    OPENAI = "openai"
    """The Responses API."""
    ANTHROPIC = "anthropic"
    """The Messages API."""


class Trouble(StrEnum):
    """What kept a provider from answering. Seen by the relay, where no agent can write."""

    REJECTED = "rejected"
    """The provider found the request itself wrong (400, 404, 413, 422)."""
    REFUSED = "refused"
    """The key is not accepted, or not for this (401, 402, 403)."""
    RATE_LIMITED = "rate_limited"
    """Too much was asked of the provider (429)."""
    FAILED = "failed"
    """The provider itself failed (5xx, and an answer that broke off)."""
    UNREACHABLE = "unreachable"
    """No connection to the provider, or no answer in time."""
    OUT_OF_BUDGET = "out_of_budget"
    """Our own budget for the task was used up."""
    DECLINED = "declined"
    """The provider's policy stopped the answer: a safety filter, or a model that refuses. Nobody's outage."""


PROVIDER_TROUBLES: Final = frozenset({Trouble.REFUSED, Trouble.RATE_LIMITED, Trouble.FAILED, Trouble.UNREACHABLE})
"""Troubles that the provider is to blame for, if it is really in trouble."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayPlan:
    """The way to one provider.

    ``base_url`` is the whole of it, with the version (``https://host/v1``) where there is one. ``key`` is put into each
    request, none if it is ``None``. The bounds are those of one task. ``authority`` is one more, in PEM, whose
    word is taken for the provider's certificate: its text, since the process that needs it may read no files.
    """

    provider: Provider
    base_url: str
    key: str | None = field(repr=False)
    model: str
    provider_tools: bool = False
    requests: int
    tokens: int
    bytes: int
    authority: str | None = None
    timeouts: ProviderTimeouts = field(default_factory=ProviderTimeouts)
    spent_requests: int = 0
    """What earlier tries of the same task used of the bounds; likewise the next two."""
    spent_tokens: int = 0
    spent_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressPlan:
    """The way out of one task's sandbox. No domains: no proxy. No relay: no provider."""

    domains: tuple[str, ...] = ()
    relay: RelayPlan | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayReport:
    """What a relay saw.

    ``answered`` are requests for a model's answer that ended well. ``statuses`` counts the provider's answers by
    status, ``refused`` the requests that were never passed on, by reason. ``trouble`` is what became of the last
    request for a model's answer, ``None`` if it ended well or there was none.
    """

    requests: int = 0
    forgiven: int = 0
    """Requests that the provider failed at. They do not count against the budget."""
    answered: int = 0
    model: str = ""
    """The model that the last answered request asked for."""
    models: Mapping[str, int] = field(default_factory=dict)
    """How many answers came from which model, in the provider's own words."""
    statuses: Mapping[str, int] = field(default_factory=dict)
    refused: Mapping[str, int] = field(default_factory=dict)
    input_tokens: int = 0
    output_tokens: int = 0
    bytes: int = 0
    trouble: Trouble | None = None
    message: str = ""
    """What there is to say of the trouble: a status and our own words, nothing of a body."""
    retry_after: float | None = None
    """For how many more seconds the provider asked to be left alone, where the last trouble says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReport:
    """What a provider answered when the gateway itself asked it. ``trouble`` is ``None`` where all was well.

    ``status`` is 0 if no answer came. ``model_unknown``: the provider has no such model.
    """

    trouble: Trouble | None = None
    message: str = ""
    status: int = 0
    model_unknown: bool = False
    input_tokens: int = 0
    output_tokens: int = 0
    retry_after: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressReport:
    """What became of one task's way out: decisions of the proxy by reason (``allowed`` is one), and by host."""

    decisions: Mapping[str, int] = field(default_factory=dict)
    hosts: Mapping[str, int] = field(default_factory=dict)
    bytes: int = 0
    relay: RelayReport | None = None
