"""Amounts of money as integers."""

from __future__ import annotations

import pytest

from securebench.money import CachedTokens, TokenPrices, dollars, in_usd, micro_usd

PRICES = TokenPrices(input=3_000_000, cached_input=300_000, cache_write=3_750_000, cache_write_1h=6_000_000, output=1)


@pytest.mark.parametrize(
    ("micro", "text"),
    [(0, "$0.00"), (400, "$0.0004"), (12_500_000, "$12.50"), (1_234_567_000_001, "$1,234,567.000001")],
)
def test_amounts_for_people(micro: int, text: str) -> None:
    """An amount is shown with two decimals, or with up to six if it has a fraction of a cent."""
    assert dollars(micro) == text
    assert micro_usd(in_usd(micro)) == micro


def test_a_price_is_rounded_up() -> None:
    """Each kind of token has its own price. The cost is rounded up, zero without tokens, and never negative."""
    cached = CachedTokens(read=10, written=4, written_1h=1)
    assert PRICES.cost(20, 0, cached) == -(-(5 * 3_000_000 + 10 * 300_000 + 4 * 3_750_000 + 6_000_000) // 1_000_000)
    assert (PRICES.cost(0, 1), PRICES.cost(0, 0)) == (1, 0)
    assert PRICES.cost(0, 0, CachedTokens(read=100)) == 30
    assert PRICES.cost(10**12, 10**12) == 3 * 10**12 + 10**6
