"""The budget of a task: its limits, and the reservations of requests in progress."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from relay_setup import BODIES, CHAT, CLAUDE, GEMINI, PLAN
from securebench.egress.relay.budget import Reservation, Spending, media_tokens
from securebench.egress.relay.providers import dialect_of
from securebench.egress.relay.refusals import RefusedError
from securebench.money import TokenPrices

if TYPE_CHECKING:
    from securebench.egress.model import RelayPlan

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
    """A budget is used up when one of its limits is reached. Input and output tokens are added.

    Up to ``requests`` failed requests do not count if the provider caused the failure.
    """
    assert spent.over(replace(PLAN, requests=5, tokens=100, bytes=1000)) == bound


def test_whose_spending_it_is() -> None:
    """If the provider's failures alone exhaust a budget, ``over`` reports it, but ``is_used_up`` does not."""
    plan = replace(PLAN, requests=5)
    assert Spending(requests=10, failed=9).over(plan)
    assert not Spending(requests=10, failed=9).is_used_up(plan)
    assert Spending(requests=10, failed=5).is_used_up(plan)
    assert Spending(requests=10, failed=9, bytes=plan.bytes).is_used_up(plan)


@pytest.mark.parametrize(("micro", "unreported", "bound"), [(299, 0, ""), (300, 0, "$0.0005"), (250, 50, "$0.0005")])
def test_money_is_a_bound(micro: int, unreported: int, bound: str) -> None:
    """The cost of earlier tries and the maximum cost of incomplete answers count towards the limit in money."""
    plan = replace(PLAN, micro_usd=500, prices=PRICES, spent_micro_usd=200)
    assert Spending(micro_usd=micro, unreported_micro_usd=unreported).over(plan) == bound
    assert not Spending(micro_usd=micro, unreported_micro_usd=unreported).over(replace(plan, micro_usd=None))


def test_requests_in_progress_share_the_budget() -> None:
    """A request may start beside others if all together cannot exceed the budget. Alone, it may always start."""
    plan = replace(PLAN, tokens=1000, micro_usd=1000, prices=PRICES, spent_tokens=100, spent_micro_usd=100)
    wanted = Reservation.of(plan, 100, 150)
    assert wanted == Reservation(tokens=250, micro_usd=400)
    assert Spending(micro_usd=900).has_room(plan, wanted)
    assert Spending(micro_usd=100, reserved=[wanted]).has_room(plan, wanted)
    assert not Spending(micro_usd=101, reserved=[wanted]).has_room(plan, wanted)
    assert Spending(input_tokens=400, reserved=[wanted]).has_room(plan, wanted)
    assert not Spending(output_tokens=401, reserved=[wanted]).has_room(plan, wanted)
    assert Reservation.of(PLAN, 4, None) == Reservation(tokens=131_076, micro_usd=0)
    cached = replace(PRICES, cache_write_1h=4_000_000)
    assert Reservation.of(replace(plan, prices=cached), 100, 150).micro_usd == 700


@pytest.mark.parametrize(
    ("plan", "limits", "most"),
    [
        (CHAT, {"max_tokens": 1, "max_completion_tokens": 100}, 100),
        (CHAT, {"max_tokens": 100, "max_completion_tokens": 1}, 100),
        (CHAT, {"max_tokens": 1, "reasoning": {"max_tokens": 50}}, 50),
        (PLAN, {"max_output_tokens": 7}, 7),
        (CLAUDE, {"max_tokens": 1, "thinking": {"budget_tokens": 60}}, 60),
        (GEMINI, {"generation_config": {"max_output_tokens": 5}}, 5),
        (GEMINI, {"generationConfig": {"maxOutputTokens": 1, "thinkingConfig": {"thinking_budget": 60}}}, 60),
        (GEMINI, {"generationConfig": {"thinkingConfig": {"thinkingBudget": -1}}}, None),
        (PLAN, {}, None),
    ],
)
def test_most_output_is_the_largest_limit(plan: RelayPlan, limits: dict[str, Any], most: int | None) -> None:
    """If a request sets several output limits, the largest counts, because the provider may use any of them."""
    assert dialect_of(plan.provider).max_output_tokens({**BODIES[plan.provider], **limits}) == most


@pytest.mark.parametrize("value", [100.0, "100", True, [1], -5, 10**20])
@pytest.mark.parametrize(
    ("plan", "name"),
    [(CHAT, "max_tokens"), (CHAT, "max_completion_tokens"), (PLAN, "max_output_tokens"), (CLAUDE, "max_tokens")],
)
def test_limits_are_whole_numbers(plan: RelayPlan, name: str, value: Any) -> None:
    """A limit that is not an integer in the valid range is refused: the relay could not reserve tokens for it."""
    with pytest.raises(RefusedError, match=name):
        dialect_of(plan.provider).check({**BODIES[plan.provider], name: value}, plan)
    with pytest.raises(RefusedError, match="maxOutputTokens"):
        dialect_of(GEMINI.provider).check({"generationConfig": {"maxOutputTokens": value}}, GEMINI)


_DATA = "data:application/pdf;base64,AA=="


@pytest.mark.parametrize(
    ("content", "tokens"),
    [
        ([{"type": "text", "text": "image"}], 0),
        ([{"properties": {name: {"type": "string"} for name in ("data", "mimeType", "image_url", "file_data")}}], 0),
        ([{"type": "image_url", "image_url": {"url": _DATA}}, {"type": "text", "text": "x"}], 16_384),
        ([{"type": "tool_result", "content": [{"type": "image", "source": {"type": "base64"}}] * 2}], 2 * 16_384),
        ([{"type": "image"}] * 100, 1_000_000),
        ([{"type": "input_text", "image_url": _DATA}], 16_384),
        ([{"type": "file", "file": {"file_data": _DATA}}], 1_000_000),
        ([{"type": "input_file", "file_data": _DATA}], 1_000_000),
        ([{"type": "document", "source": {"type": "base64", "media_type": "application/pdf"}}], 1_000_000),
        ([{"type": "input_audio", "input_audio": {"data": "AA=="}}], 1_000_000),
        ([{"inlineData": {"mimeType": "image/png", "data": "AA=="}}], 16_384),
        ([{"inline_data": {"mime_type": "video/mp4", "data": "AA=="}}], 1_000_000),
    ],
)
def test_media_reserve_more_than_their_bytes(content: Any, tokens: int) -> None:
    """Media reserve a fixed number of tokens: a PDF of a few kilobytes may have hundreds of pages."""
    assert media_tokens({"messages": [{"role": "user", "content": content}]}) == tokens
