"""What is left of a task's budget."""

from __future__ import annotations

from dataclasses import replace

import pytest

from relay_setup import PLAN
from securebench.egress.relay.budget import Reservation, Spending
from securebench.money import TokenPrices

PRICES = TokenPrices(input=1_000_000, cached_input=0, cache_write=0, cache_write_1h=0, output=2_000_000)


@pytest.mark.parametrize(
    ("spent", "bound"),
    [
        (Spending(), ""),
        (Spending(requests=4, input_tokens=60, output_tokens=39, bytes=999), ""),
        (Spending(requests=5), "5 requests"),
        (Spending(input_tokens=60, output_tokens=40), "100 tokens"),
        (Spending(bytes=1000), "1,000 bytes"),
        (Spending(requests=9, bytes=9999), "5 requests"),
        (Spending(requests=8, failed=4), ""),
        (Spending(requests=9, failed=4), "5 requests"),
        (Spending(requests=10, failed=9), "5 requests"),
    ],
)
def test_bounds(spent: Spending, bound: str) -> None:
    """A budget is used up when what was spent reaches one of its bounds; tokens of both kinds count together.

    What the provider failed at does not count, as often as there may be requests.
    """
    assert spent.over(replace(PLAN, requests=5, tokens=100, bytes=1000)) == bound


def test_whose_spending_it_is() -> None:
    """A budget that only the provider's failures used up is not used up by the agent."""
    plan = replace(PLAN, requests=5)
    assert Spending(requests=10, failed=9).over(plan)
    assert not Spending(requests=10, failed=9).is_used_up(plan)
    assert Spending(requests=10, failed=5).is_used_up(plan)
    assert Spending(requests=10, failed=9, bytes=plan.bytes).is_used_up(plan)


@pytest.mark.parametrize(("micro", "broken_off", "bound"), [(299, 0, ""), (300, 0, "$0.0005"), (250, 50, "$0.0005")])
def test_money_is_a_bound(micro: int, broken_off: int, bound: str) -> None:
    """What earlier tries cost counts, and so does what answers that the agent broke off may have cost."""
    plan = replace(PLAN, micro_usd=500, prices=PRICES, spent_micro_usd=200)
    assert Spending(micro_usd=micro, broken_off=broken_off).over(plan) == bound
    assert not Spending(micro_usd=micro, broken_off=broken_off).over(replace(plan, micro_usd=None))


def test_requests_in_progress_share_the_budget() -> None:
    """A request has room beside others if all together cannot exceed the budget. A single one always has."""
    plan = replace(PLAN, tokens=1000, micro_usd=1000, prices=PRICES, spent_tokens=100, spent_micro_usd=100)
    wanted = Reservation.of(plan, 100, 150)
    assert wanted == Reservation(tokens=250, micro_usd=400, answer=300)
    assert Spending(micro_usd=900).has_room(plan, wanted)
    assert Spending(micro_usd=100, reserved=[wanted]).has_room(plan, wanted)
    assert not Spending(micro_usd=101, reserved=[wanted]).has_room(plan, wanted)
    assert Spending(input_tokens=400, reserved=[wanted]).has_room(plan, wanted)
    assert not Spending(output_tokens=401, reserved=[wanted]).has_room(plan, wanted)
    assert Reservation.of(PLAN, 4, None) == Reservation(tokens=32_772, micro_usd=0, answer=0)
