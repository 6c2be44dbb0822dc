"""Money in micro-dollars: integers, so that sums are exact."""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Iterable

_MILLION: Final = 1_000_000


def micro_usd(usd: float) -> int:
    """Return an amount of US dollars in micro-dollars."""
    return round(usd * _MILLION)


def in_usd(micro: int) -> float:
    """Return an amount of micro-dollars in US dollars."""
    return micro / _MILLION


def dollars(micro: int) -> str:
    """Return an amount of micro-dollars as a text for people: ``$12.50``.

    An amount that is not a whole number of cents has more digits: ``$0.0004``.
    """
    whole, fraction = divmod(micro, _MILLION)
    return f"${whole:,}.{f'{fraction:06}'.rstrip('0').ljust(2, '0')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedTokens:
    """Input tokens that a provider read from its cache or wrote to its cache.

    ``written`` tokens stay in the cache for a few minutes, ``written_1h`` tokens for an hour.
    """

    read: int = 0
    written: int = 0
    written_1h: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPrices:
    """Prices in micro-dollars per million tokens."""

    input: int
    cached_input: int
    cache_write: int
    cache_write_1h: int
    output: int

    def cost(self, input_tokens: int, output_tokens: int, cached: CachedTokens | None = None) -> int:
        """Return the price of an answer in micro-dollars, rounded up.

        ``input_tokens`` includes those in ``cached``.
        """
        cached = cached or CachedTokens()
        plain = max(0, input_tokens - cached.read - cached.written - cached.written_1h)
        total = (
            plain * self.input
            + cached.read * self.cached_input
            + cached.written * self.cache_write
            + cached.written_1h * self.cache_write_1h
            + output_tokens * self.output
        )
        return -(-total // _MILLION)

    @classmethod
    def highest(cls, prices: Iterable[TokenPrices]) -> Self:
        """Return the highest price of each kind. ``prices`` must not be empty."""
        rows = [astuple(one) for one in prices]
        return cls(**{item.name: max(row[place] for row in rows) for place, item in enumerate(fields(cls))})

    def max_cost(self, input_tokens: int, output_tokens: int) -> int:
        """Return the highest possible cost of these numbers of tokens, in micro-dollars, rounded up.

        Each input token is counted at the highest of the four input prices.
        """
        dearest = max(self.input, self.cached_input, self.cache_write, self.cache_write_1h)
        return -(-(input_tokens * dearest + output_tokens * self.output) // _MILLION)
