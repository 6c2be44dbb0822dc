"""The encoding of settings, plans and reports that a run and its gateway exchange."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from securebench.egress.codec import (
    plan_from_json,
    plan_to_json,
    report_from_json,
    report_to_json,
    settings_from_json,
    settings_to_json,
)
from securebench.egress.model import EgressPlan, EgressReport, KeyForm, Provider, RelayPlan, RelayReport, Trouble
from securebench.egress.rules import Caps, ProxyRules
from securebench.ipc.frames import FrameError, pack
from securebench.money import TokenPrices

PLAN = EgressPlan(
    domains=("a.test", "b.test"),
    relay=RelayPlan(
        provider=Provider.ANTHROPIC,
        base_url="https://a.test",
        key="kéy\n",
        model="m",
        provider_tools=True,
        requests=1,
        tokens=2,
        bytes=3,
        ca_bundle="PEM",
        micro_usd=10**15,
        prices=TokenPrices(input=1, cached_input=2, cache_write=3, cache_write_1h=4, output=5),
        spent_micro_usd=6,
        proxy="http://user:word@proxy:3128",
        key_form=KeyForm.AZURE,
        api_version="2024-10-21",
    ),
)
REPORT = EgressReport(
    decisions={"allowed": 1},
    hosts={"a.test": 1},
    bytes=7,
    relay=RelayReport(
        requests=2, statuses={"200": 1}, refused={"path": 1}, micro_usd=7, trouble=Trouble.FAILED, message="500"
    ),
)


def test_a_plan_comes_as_it_was_sent() -> None:
    """A plan with all fields, and an empty plan, are the same after encoding and decoding."""
    for plan in (PLAN, EgressPlan()):
        assert plan_from_json(json.loads(pack(plan_to_json(plan)))) == plan


def test_what_holds_for_a_gateway_comes_as_it_was_sent() -> None:
    """A gateway's rules and caps are the same after encoding and decoding."""
    rules = ProxyRules(names={"a.test": ("127.0.0.1",)}, ports={443: 8443}, trusted=("127.0.0.0/8",))
    caps = Caps(connections=3)
    assert settings_from_json(json.loads(pack(settings_to_json(rules, caps)))) == (rules, caps)


def test_a_report_comes_as_it_was_sent() -> None:
    """Reports with and without a relay are the same after encoding and decoding."""
    for report in (REPORT, EgressReport(), EgressReport(relay=RelayReport())):
        assert report_from_json(json.loads(pack(report_to_json(report)))) == report


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(["decisions", "hosts", "bytes", "relay"]), JSON)
def test_a_report_of_another_form_is_an_error(name: str, value: Any) -> None:
    """A report with any JSON value in one field is decoded, or raises :class:`FrameError` and nothing else."""
    found = {**report_to_json(EgressReport()), name: value}
    try:
        assert isinstance(report_from_json(found), EgressReport)
    except FrameError:
        return


@given(st.sampled_from(sorted(report_to_json(REPORT)["relay"])), JSON)
def test_a_relay_s_report_of_another_form_is_an_error(name: str, value: Any) -> None:
    """A relay's report with any JSON value in one field is decoded, or raises only :class:`FrameError`."""
    found = report_to_json(REPORT)
    found["relay"][name] = value
    try:
        assert isinstance(report_from_json(found), EgressReport)
    except FrameError:
        return
