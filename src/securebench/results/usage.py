"""What agents used of their models, added up. As their programs and the relay say it: for people, never a verdict."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from securebench.resources import JsonValue

_MOST: Final = 10**15
"""More of anything than one task can use: a program that says so is not believed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens, turns, and the cost in US dollars where a program told one. Nothing is what was not told."""

    input_tokens: int = 0
    output_tokens: int = 0
    turns: int = 0
    cost_usd: float | None = None
    requests: int = 0
    """Those that a relay passed on; of these the provider failed at the ``forgiven``."""
    forgiven: int = 0
    bytes: int = 0

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
        )

    def __bool__(self) -> bool:
        counts = (self.input_tokens, self.output_tokens, self.turns, self.requests, self.forgiven, self.bytes)
        return any(counts) or self.cost_usd is not None

    def to_json(self) -> dict[str, JsonValue]:
        """Return it as JSON; what a relay counts and the cost only where there are such."""
        relayed = {"requests": self.requests, "forgiven": self.forgiven, "bytes": self.bytes} if self.requests else {}
        cost = {} if self.cost_usd is None else {"cost_usd": round(self.cost_usd, 6)}
        tokens = {"input_tokens": self.input_tokens, "output_tokens": self.output_tokens}
        return {**tokens, "turns": self.turns, **relayed, **cost}


def read_usage(value: Any) -> Usage | None:
    """Return what a record's ``provenance.usage`` or ``spent`` says, or ``None`` if that is nothing.

    What is odd is left out. Tokens of the gateway's own questions to the provider count as well.
    """
    if not isinstance(value, dict):
        return None
    cost: Any = value.get("cost_usd")
    probes = value.get("probes")
    asked = probes if isinstance(probes, dict) else {}
    relay: dict[str, Any] = {**value, **(value["relay"] if isinstance(value.get("relay"), dict) else {})}
    usage = Usage(
        input_tokens=_count(value.get("input_tokens")) + _count(asked.get("input_tokens")),
        output_tokens=_count(value.get("output_tokens")) + _count(asked.get("output_tokens")),
        turns=_count(value.get("turns")),
        cost_usd=float(cost) if _is_amount(cost) else None,
        requests=_count(value.get("requests")),
        forgiven=_count(relay.get("forgiven")),
        bytes=_count(relay.get("bytes")),
    )
    return usage or None


def _count(value: Any) -> int:
    return int(value) if _is_amount(value) and isinstance(value, int) else 0


def _is_amount(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _MOST
