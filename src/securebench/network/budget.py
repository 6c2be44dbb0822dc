"""What one task may ask of its provider, and what is left of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from securebench.network.model import RelayPlan


@dataclass(slots=True)
class Spending:
    """What was spent. ``bytes`` are those of bodies, both ways."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    bytes: int = 0

    def over(self, plan: RelayPlan) -> str:
        """Return which bound of ``plan`` leaves no room for another request, in words; nothing if none does."""
        spent = {
            f"{plan.requests} requests": self.requests >= plan.requests,
            f"{plan.tokens} tokens": self.input_tokens + self.output_tokens >= plan.tokens,
            f"{plan.bytes} bytes": self.bytes >= plan.bytes,
        }
        return next((bound for bound, is_over in spent.items() if is_over), "")
