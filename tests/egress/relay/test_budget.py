"""What is left of a task's budget."""

from __future__ import annotations

from dataclasses import replace

import pytest

from relay_setup import PLAN
from securebench.egress.relay.budget import Spending


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
