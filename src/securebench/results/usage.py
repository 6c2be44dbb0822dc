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

    def __add__(self, other: Usage) -> Usage:
        costs = [cost for cost in (self.cost_usd, other.cost_usd) if cost is not None]
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            turns=self.turns + other.turns,
            cost_usd=math.fsum(costs) if costs else None,
        )

    def __bool__(self) -> bool:
        return bool(self.input_tokens or self.output_tokens or self.turns or self.cost_usd is not None)

    def to_json(self) -> dict[str, JsonValue]:
        """Return it as JSON; the cost only where there is one."""
        cost = {} if self.cost_usd is None else {"cost_usd": round(self.cost_usd, 6)}
        return {"input_tokens": self.input_tokens, "output_tokens": self.output_tokens, "turns": self.turns, **cost}


def read_usage(value: Any) -> Usage | None:
    """Return what a record's ``provenance.usage`` says, or ``None`` if that is nothing. What is odd is left out.

    The gateway's own questions to the provider count as well.
    """
    if not isinstance(value, dict):
        return None
    cost: Any = value.get("cost_usd")
    probes = value.get("probes")
    probed = (read_usage(probes) if isinstance(probes, dict) else None) or Usage()
    usage = probed + Usage(
        input_tokens=_count(value.get("input_tokens")),
        output_tokens=_count(value.get("output_tokens")),
        turns=_count(value.get("turns")),
        cost_usd=float(cost) if _is_amount(cost) else None,
    )
    return usage or None


def _count(value: Any) -> int:
    return int(value) if _is_amount(value) and isinstance(value, int) else 0


def _is_amount(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _MOST
