"""What a task's way out is made of, and what is known of its use afterwards. Plain data, which crosses a process."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

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
    answered: int = 0
    statuses: Mapping[str, int] = field(default_factory=dict)
    refused: Mapping[str, int] = field(default_factory=dict)
    input_tokens: int = 0
    output_tokens: int = 0
    bytes: int = 0
    trouble: Trouble | None = None
    message: str = ""
    """What there is to say of the trouble: a status and our own words, nothing of a body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressReport:
    """What became of one task's way out: decisions of the proxy by reason (``allowed`` is one), and by host."""

    decisions: Mapping[str, int] = field(default_factory=dict)
    hosts: Mapping[str, int] = field(default_factory=dict)
    bytes: int = 0
    relay: RelayReport | None = None
