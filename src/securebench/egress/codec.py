"""Convert plans and reports to and from the JSON of frames. Data from the gateway process is checked strictly."""

from __future__ import annotations

import math
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from securebench.egress.model import (
    EgressPlan,
    EgressReport,
    KeyForm,
    ProbeReport,
    Provider,
    RelayPlan,
    RelayReport,
    Trouble,
)
from securebench.egress.rules import Caps, ProxyRules
from securebench.ipc.frames import FrameError
from securebench.limits import ProviderTimeouts
from securebench.money import TokenPrices

if TYPE_CHECKING:
    from collections.abc import Mapping


def plan_to_json(plan: EgressPlan) -> dict[str, Any]:
    """Return ``plan`` as JSON for a frame. The result may contain the provider's key."""
    return {"domains": list(plan.domains), "relay": relay_to_json(plan.relay) if plan.relay else None}


def plan_from_json(found: Mapping[str, Any]) -> EgressPlan:
    """Return the plan that a frame contains."""
    relay = found["relay"]
    return EgressPlan(domains=tuple(found["domains"]), relay=relay_from_json(relay) if relay else None)


def relay_to_json(plan: RelayPlan) -> dict[str, Any]:
    """Return ``plan`` as JSON for a frame. The result may contain the provider's key."""
    return asdict(plan)


def relay_from_json(found: Mapping[str, Any]) -> RelayPlan:
    """Return the relay plan that a frame contains."""
    named = {"provider": Provider(found["provider"]), "key_form": KeyForm(found["key_form"])}
    timeouts = ProviderTimeouts(**found["timeouts"])
    prices = TokenPrices(**found["prices"]) if found["prices"] else None
    by_model = {name: TokenPrices(**given) for name, given in found["model_prices"].items()}
    return RelayPlan(**{**found, **named, "timeouts": timeouts, "prices": prices, "model_prices": by_model})


def settings_to_json(rules: ProxyRules, caps: Caps) -> dict[str, Any]:
    """Return the settings of a gateway as JSON for its first frame."""
    names = {name: list(addresses) for name, addresses in rules.names.items()}
    ports = {str(port): other for port, other in rules.ports.items()}
    return {"names": names, "ports": ports, "trusted": list(rules.trusted), "caps": asdict(caps)}


def settings_from_json(found: Mapping[str, Any]) -> tuple[ProxyRules, Caps]:
    """Return the settings that a gateway's first frame contains."""
    rules = ProxyRules(
        names={name: tuple(addresses) for name, addresses in found["names"].items()},
        ports={int(port): other for port, other in found["ports"].items()},
        trusted=tuple(found["trusted"]),
    )
    return rules, Caps(**found["caps"])


def report_to_json(report: EgressReport) -> dict[str, Any]:
    """Return ``report`` as JSON for a frame."""
    relay = {item.name: getattr(report.relay, item.name) for item in fields(report.relay)} if report.relay else None
    counts = {"decisions": dict(report.decisions), "hosts": dict(report.hosts), "bytes": report.bytes}
    if relay:
        relay |= {name: dict(relay[name]) for name in ("models", "statuses", "refused")}
    return {**counts, "relay": relay}


def report_from_json(found: object) -> EgressReport:
    """Return the report that a frame contains. Raises :class:`FrameError` if it is invalid."""
    report = _object(found)
    relay = None if report.get("relay") is None else _relay_report(_object(report["relay"]))
    return EgressReport(
        decisions=_counts(report.get("decisions")),
        hosts=_counts(report.get("hosts")),
        bytes=_count(report.get("bytes")),
        relay=relay,
    )


def probe_to_json(report: ProbeReport) -> dict[str, Any]:
    """Return ``report`` as JSON for a frame."""
    return asdict(report)


def probe_from_json(found: object) -> ProbeReport:
    """Return the probe report that a frame contains. Raises :class:`FrameError` if it is invalid."""
    report = _object(found)
    return ProbeReport(
        trouble=_trouble(report.get("trouble")),
        message=_text(report.get("message")),
        model_unknown=report.get("model_unknown") is True,
        is_foreign=report.get("is_foreign") is True,
        is_connected=report.get("is_connected") is True,
        retry_after=_seconds(report.get("retry_after")),
        **{name: _count(report.get(name)) for name in ("status", "input_tokens", "output_tokens")},
    )


def _relay_report(found: Mapping[str, Any]) -> RelayReport:
    counted = ["requests", "forgiven", "answered", "input_tokens", "output_tokens", "bytes"]
    counted += ["unreported_tokens", "unreported_micro_usd"]
    return RelayReport(
        **{name: _count(found.get(name)) for name in counted},
        model=_text(found.get("model")),
        micro_usd=None if found.get("micro_usd") is None else _count(found["micro_usd"]),
        models=_counts(found.get("models")),
        statuses=_counts(found.get("statuses")),
        refused=_counts(found.get("refused")),
        trouble=_trouble(found.get("trouble")),
        message=_text(found.get("message")),
        retry_after=_seconds(found.get("retry_after")),
    )


def _trouble(found: object) -> Trouble | None:
    if found is None:
        return None
    try:
        return Trouble(_text(found))
    except ValueError:
        raise FrameError("the report contains an unknown problem code") from None


def _seconds(found: object) -> float | None:
    if found is None:
        return None
    if not isinstance(found, int | float) or isinstance(found, bool) or not (math.isfinite(found) and found >= 0):
        raise FrameError("the report contains an invalid number of seconds")
    return float(found)


def _object(found: object) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise FrameError("the report or a part of it is not a JSON object")
    return found


def _counts(found: object) -> dict[str, int]:
    return {_text(name): _count(number) for name, number in _object(found).items()}


def _count(found: object) -> int:
    if not isinstance(found, int) or isinstance(found, bool) or found < 0:
        raise FrameError("the report contains an invalid count: expected an integer of at least 0")
    return found


def _text(found: object) -> str:
    if not isinstance(found, str):
        raise FrameError("the report contains a value that is not a string")
    return found
