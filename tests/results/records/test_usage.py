"""What agents used, added up."""

from __future__ import annotations

import math
from typing import Any

import pytest

from securebench.results.records.usage import Usage, read_usage


def test_usage_is_added_up() -> None:
    """Tokens and turns are summed; a cost is the sum of those that were told, and absent where none was."""
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
    """The gateway's own test requests are part of the cost, also where nothing else is known."""
    probes = {"input_tokens": 5, "output_tokens": 1, "cost_usd": 0.25}
    assert read_usage({"cost_usd": 0.5, "probes": probes}) == Usage(input_tokens=5, output_tokens=1, cost_usd=0.75)
    assert read_usage({"cost_usd": None, "probes": probes}) == Usage(input_tokens=5, output_tokens=1, cost_usd=0.25)


@pytest.mark.parametrize("value", [None, [], "x", {}, {"tokens": 7}, {"input_tokens": 0}])
def test_nothing_told_is_no_usage(value: Any) -> None:
    """A record without counts that are known has no usage."""
    assert read_usage(value) is None


@pytest.mark.parametrize("odd", [-1, True, "5", None, 10**16, math.nan, math.inf, [5], {"a": 1}, 1.5])
def test_what_no_program_uses_is_not_counted(odd: Any) -> None:
    """A hostile program moves no sum by what is no count."""
    usage = read_usage({"input_tokens": odd, "output_tokens": odd, "turns": odd, "cost_usd": 0})
    assert usage == Usage(cost_usd=0.0)


def test_what_was_not_reported_is_added_up() -> None:
    """What answers may have cost whose end is not known is kept beside what they cost."""
    usage = read_usage({"requests": 1, "cost_usd": 0.1, "relay": {"unreported_tokens": 5, "unreported_usd": 0.25}})
    assert usage
    assert (usage + usage).to_json()["unreported_tokens"] == 10
    assert read_usage((usage + usage).to_json()) == usage + usage
    assert (usage + usage).unreported_usd == 0.5
    assert (usage + usage).cost_usd == 0.2
