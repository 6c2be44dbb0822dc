"""The usage of agents and its sums."""

from __future__ import annotations

import math
from typing import Any

import pytest

from securebench.results.records.usage import Usage, read_usage


def test_usage_is_added_up() -> None:
    """Tokens, turns and reported costs are summed. If no cost was reported at all, the sum has no cost."""
    reported = read_usage({"input_tokens": 3, "output_tokens": 2, "turns": 1, "cost_usd": 0.1, "other": "x"})
    silent = read_usage({"input_tokens": 4, "output_tokens": 1})
    assert reported
    assert silent
    assert (silent + silent).to_json() == {"input_tokens": 8, "output_tokens": 2, "turns": 0}
    assert (reported + silent + reported).to_json() == {
        "input_tokens": 10,
        "output_tokens": 5,
        "turns": 2,
        "cost_usd": 0.2,
    }


def test_probes_cost_money() -> None:
    """The cost of the gateway's own test requests is added, even if the cost of the other requests is unknown."""
    probes = {"input_tokens": 5, "output_tokens": 1, "cost_usd": 0.25}
    assert read_usage({"cost_usd": 0.5, "probes": probes}) == Usage(input_tokens=5, output_tokens=1, cost_usd=0.75)
    assert read_usage({"cost_usd": None, "probes": probes}) == Usage(input_tokens=5, output_tokens=1, cost_usd=0.25)


@pytest.mark.parametrize("value", [None, [], "x", {}, {"tokens": 7}, {"input_tokens": 0}])
def test_nothing_told_is_no_usage(value: Any) -> None:
    """A value without known counts, or with only zeros, is read as no usage."""
    assert read_usage(value) is None


@pytest.mark.parametrize("odd", [-1, True, "5", None, 10**16, math.nan, math.inf, [5], {"a": 1}, 1.5])
def test_what_no_program_uses_is_not_counted(odd: Any) -> None:
    """Invalid and impossibly large counts are ignored, so that a hostile program cannot change the sums."""
    usage = read_usage({"input_tokens": odd, "output_tokens": odd, "turns": odd, "cost_usd": 0})
    assert usage == Usage(cost_usd=0.0)


def test_what_was_not_reported_is_added_up() -> None:
    """Tokens and costs that cut-off answers may have used are summed separately from the reported cost."""
    usage = read_usage({"requests": 1, "cost_usd": 0.1, "relay": {"unreported_tokens": 5, "unreported_usd": 0.25}})
    assert usage
    assert (usage + usage).to_json()["unreported_tokens"] == 10
    assert read_usage((usage + usage).to_json()) == usage + usage
    assert (usage + usage).unreported_usd == 0.5
    assert (usage + usage).cost_usd == 0.2
