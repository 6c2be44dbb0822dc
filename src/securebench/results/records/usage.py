"""The model usage of agents and judges, as reported by agent programs and the relay.

It affects a verdict only through a budget.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from securebench.resources import JsonValue

_MOST: Final = 10**15
"""The largest accepted value. Larger reported values are ignored, because no task can use that much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens, turns and, if it is known, the cost in US dollars. Missing counts are 0."""

    input_tokens: int = 0
    output_tokens: int = 0
    turns: int = 0
    cost_usd: float | None = None
    requests: int = 0
    """Requests that a relay forwarded; ``forgiven`` of them failed because of the provider."""
    forgiven: int = 0
    bytes: int = 0
    unreported_tokens: int = 0
    """Additional tokens that cut-off answers may have used. They are charged to budgets."""
    unreported_usd: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        costs = [cost for cost in (self.cost_usd, other.cost_usd) if cost is not None]
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            turns=self.turns + other.turns,
            cost_usd=math.fsum(costs) if costs else None,
            requests=self.requests + other.requests,
            forgiven=self.forgiven + other.forgiven,
            bytes=self.bytes + other.bytes,
            unreported_tokens=self.unreported_tokens + other.unreported_tokens,
            unreported_usd=math.fsum((self.unreported_usd, other.unreported_usd)),
        )

    def __bool__(self) -> bool:
        counts = (self.input_tokens, self.output_tokens, self.turns, self.requests, self.forgiven, self.bytes)
        return any(counts) or self.cost_usd is not None

    def to_json(self) -> dict[str, JsonValue]:
        """Return the usage as JSON. The relay's counts and the cost are omitted if there are none."""
        relayed = {"requests": self.requests, "forgiven": self.forgiven, "bytes": self.bytes} if self.requests else {}
        cost = {} if self.cost_usd is None else {"cost_usd": round(self.cost_usd, 6)}
        tokens = {"input_tokens": self.input_tokens, "output_tokens": self.output_tokens}
        unreported = {"unreported_tokens": self.unreported_tokens} if self.unreported_tokens else {}
        at_most = {"unreported_usd": round(self.unreported_usd, 6)} if self.unreported_usd else {}
        return {**tokens, "turns": self.turns, **relayed, **cost, **unreported, **at_most}


def read_usage(value: Any) -> Usage | None:
    """Return the usage in ``value``, such as ``provenance.usage`` of a record; ``None`` if there is none.

    Invalid values are ignored. The tokens and the cost of the gateway's own test requests are included.
    """
    if not isinstance(value, dict) or not value:
        return None
    probes = value.get("probes")
    probed = probes if isinstance(probes, dict) else {}
    costs: list[Any] = [part["cost_usd"] for part in (value, probed) if _is_amount(part.get("cost_usd"))]
    relay: dict[str, Any] = {**value, **(value["relay"] if isinstance(value.get("relay"), dict) else {})}
    usage = Usage(
        input_tokens=_count(value.get("input_tokens")) + _count(probed.get("input_tokens")),
        output_tokens=_count(value.get("output_tokens")) + _count(probed.get("output_tokens")),
        turns=_count(value.get("turns")),
        cost_usd=math.fsum(costs) if costs else None,
        requests=_count(value.get("requests")),
        forgiven=_count(relay.get("forgiven")),
        bytes=_count(relay.get("bytes")),
        unreported_tokens=_count(relay.get("unreported_tokens")),
        unreported_usd=float(relay["unreported_usd"]) if _is_amount(relay.get("unreported_usd")) else 0.0,
    )
    return usage or None


def _count(value: Any) -> int:
    return int(value) if _is_amount(value) and isinstance(value, int) else 0


def _is_amount(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _MOST
