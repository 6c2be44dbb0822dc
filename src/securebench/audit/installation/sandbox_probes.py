"""Probes of sandboxes: the breakout suite, the conformance checks, and attacks on the egress gateway."""

from __future__ import annotations

import json
import os
import socket
from typing import TYPE_CHECKING, Final

from securebench.audit.installation.model import AuditOutcome
from securebench.audit.installation.probes import ProbeContext, ProbeFinding, ProbeKind, findings
from securebench.egress.model import EgressPlan, Provider, RelayPlan
from securebench.plurals import counted
from securebench.sandboxes.base import BASE_ENVIRONMENT, Command, Mount, SandboxSpec, workspace_user
from securebench.sandboxes.enforcement import DriverFeature
from securebench.sandboxes.spec_rules import RUNSC
from securebench.testing.breakout import ATTEMPTS, EVIDENCE, USERS, AttemptOutcome, break_out
from securebench.testing.conformance import CHECKS, expected_failure
from securebench.testing.conformance.bench import run_checks
from securebench.testing.egress_world import world
from securebench.testing.provider import Say, ScriptedProvider
from securebench.testing.provider.attacks import ALLOWED, DENIED, DONE, LINES, LOOT, Targets, attack
from securebench.trials import TrialId

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from pathlib import Path

    from securebench.egress.gateway import EgressSession
    from securebench.sandboxes.base import DriverInfo
    from securebench.testing.breakout import AttemptResult
    from securebench.testing.provider import Received

_EGRESS: Final = dict.fromkeys(("direct", "proxy", "relay", "keys", "budget"), "")
_KEY: Final = "sk-canary_of_the_audit_0123456789"
_KEY_PARTS: Final = (_KEY.encode(), _KEY.encode().hex().encode(), b"c2stY2FuYXJ5", _KEY[::-1].encode(), b"of_the_audit")
_MODEL: Final = Targets().model
_ALLOWED_HOST: Final = "allowed.example"
_OTHER_HOST: Final = "other.example"
_REQUESTS: Final = 5
_SECONDS: Final = 120.0


def break_out_of(context: ProbeContext, names: Collection[str]) -> Iterator[ProbeFinding]:
    """Make the breakout attempts as each user of ``USERS``, and check the host afterwards."""
    driver, image = context.sandboxes
    # The checks for damage to the host prove something only after all attempts.
    looks_afterwards = any(evidence.name in names for evidence in EVIDENCE)
    attempts = [name for name in ATTEMPTS if looks_afterwards or name in names]
    by_name: dict[str, dict[str, AttemptResult]] = {}
    for who, user in USERS.items():
        for result in break_out(driver, image, user=user, names=attempts):
            by_name.setdefault(result.name, {})[who] = result
    info = driver.info()
    yield from (_breakout_finding(name, by_user, info) for name, by_user in by_name.items())


def _breakout_finding(name: str, by_user: Mapping[str, AttemptResult], info: DriverInfo) -> ProbeFinding:
    """Combine an attempt's results, one for each user, into one finding.

    Reaching something in gVisor's own kernel counts as contained.
    """
    bad = []
    stopped = []
    for who, result in by_user.items():
        if result.outcome is AttemptOutcome.CONTAINED:
            stopped.append(result.how)
        elif result.outcome is AttemptOutcome.REACHED and info.runtime == RUNSC:
            stopped.append(f"worked only in gVisor's own kernel{f': {result.how}' if result.how else ''}")
        else:
            bad.append(f"{result.outcome} as {who}: {result.how}")
    return ProbeFinding.of(name, "; ".join(bad), " / ".join(dict.fromkeys(stopped)))


def conform(context: ProbeContext, names: Collection[str]) -> Iterator[ProbeFinding]:
    """Run the conformance checks called ``names``, and yield a finding for each."""
    driver, image = context.sandboxes
    info = driver.info()
    for outcome in run_checks([check for check in CHECKS if check.name in names], driver, image):
        name = outcome.check.name
        expected = expected_failure(outcome.check, info)
        if outcome.skipped:
            yield ProbeFinding(name, AuditOutcome.NOT_APPLICABLE, outcome.skipped)
        elif outcome.problem and info.runtime == RUNSC and expected and not _is_weaker(outcome.check.needs, info):
            # gVisor fails this check although it enforces every restriction that the check needs.
            yield ProbeFinding(name, AuditOutcome.NOT_APPLICABLE, expected)
        else:
            # A failure is "not contained" even if the driver declares the weakness.
            yield ProbeFinding.of(name, outcome.problem and (expected or outcome.problem), "the check passed")


def _is_weaker(needs: Iterable[str], info: DriverInfo) -> bool:
    return bool(set(needs) & set(info.weaker))


def attack_egress(context: ProbeContext, names: Collection[str]) -> Iterable[ProbeFinding]:
    """Attack the gateway from a sandbox that may use the gateway's proxy and relay, once for each kind of attack."""
    driver, _ = context.sandboxes
    if DriverFeature.FORWARDED_PORTS in driver.info().lacks:
        why = "sandboxes of this driver have no forwarded ports, so no task with egress can run"
        return [ProbeFinding(name, AuditOutcome.NOT_APPLICABLE, why) for name in names]
    return findings(_EGRESS, names, lambda kind, _entry: _attacked(context, kind), workers=1)


def _attacked(context: ProbeContext, kind: str) -> ProbeFinding:
    """Make the attempts of one kind, and judge what they report and what the provider received."""
    workspace = context.scratch / f"egress-{kind}"
    workspace.mkdir()
    if os.getuid() == 0:
        os.chown(workspace, *workspace_user())
    with (
        ScriptedProvider((Say("x"),)) as provider,
        world(_ALLOWED_HOST, addresses={_OTHER_HOST: ("127.0.0.1",)}) as outside,
        socket.create_server(("0.0.0.0", 0)) as listener,  # noqa: S104 - a target on every address of the host
    ):
        relay = RelayPlan(
            provider=Provider.OPENAI,
            base_url=f"{provider.url}/v1",
            key=_KEY,
            model=_MODEL,
            requests=_REQUESTS if kind == "budget" else 1000,
            tokens=10**9,
            bytes=10**9,
        )
        targets = Targets(allowed=_ALLOWED_HOST, other=_OTHER_HOST, port=listener.getsockname()[1])
        plan = EgressPlan(domains=(_ALLOWED_HOST,), relay=relay)
        with outside.gateway.open(TrialId("audit"), plan) as session:
            _run_attack(context, workspace, attack(kind, targets=targets, most=50).command, session)
        received, keys = provider.requests, provider.keys_seen
    lines = [json.loads(line) for line in (workspace / LINES).read_text(encoding="utf-8").splitlines()]
    loot = (workspace / LOOT).read_bytes() if (workspace / LOOT).exists() else b""
    problems = [f"{line['attempt']}: {line['outcome']}" for line in lines if not _is_expected(line)]
    problems += [
        f"a request for {one.method} {one.path} reached the provider" for one in received if not _is_allowed(one)
    ]
    if any(part in loot for part in _KEY_PARTS):
        problems.append("the sandbox could read the host's key or a part of it")
    if keys - {_KEY}:
        problems.append("another key reached the provider")
    if kind == "keys" and b"placeholder" not in loot:
        problems.append("no result: the search for keys did not even find the placeholder")
    if kind == "budget" and len(received) > _REQUESTS:
        problems.append(f"{len(received)} requests reached the provider, but the budget allows {_REQUESTS}")
    if not lines:
        problems.append("no result: no attempt was made")
    return ProbeFinding.of(kind, "; ".join(problems), f"{counted(len(lines), 'attempt')} with the expected outcome")


def _is_expected(line: Mapping[str, str]) -> bool:
    """Return whether an attempt had the expected outcome.

    Attempts whose names begin with ``control`` must be allowed: they show that the attack itself works. All others must
    be denied, or have an outcome that is only visible outside the sandbox.
    """
    is_control = line["attempt"].startswith("control")
    return line["outcome"] in ({ALLOWED} if is_control else {DENIED, DONE})


def _is_allowed(request: Received) -> bool:
    """Return whether the relay may forward ``request``: to one path, for one model, without the provider's tools."""
    body = request.body or {}
    at = (request.method, request.path)
    return at == ("POST", "/v1/responses") and body.get("model") == _MODEL and "tools" not in body


def _run_attack(context: ProbeContext, workspace: Path, command: str, session: EgressSession) -> None:
    driver, image = context.sandboxes
    spec = SandboxSpec(
        image=image,
        mounts=(Mount(workspace, "/workspace", read_only=False),),
        environment={
            **BASE_ENVIRONMENT,
            **session.environment,
            "SECUREBENCH_TASK_FILE": "/workspace/task.json",
            "OPENAI_API_KEY": "placeholder",
        },
        workdir="/workspace",
        forwarded_ports=session.forwarded_ports,
    )
    with driver.create(spec) as sandbox:
        sandbox.run(Command(argv=("/bin/sh", "-c", command), timeout_seconds=_SECONDS))


SANDBOX_KINDS: Final = (
    ProbeKind(
        "breakout",
        "escape attempts",
        {attempt.name: attempt.entry for attempt in ATTEMPTS.values()} | {one.name: one.entry for one in EVIDENCE},
        break_out_of,
        sandboxed=True,
    ),
    ProbeKind("conformance", "conformance checks", {check.name: "" for check in CHECKS}, conform, sandboxed=True),
    ProbeKind(
        "egress",
        "attacks on the egress gateway",
        _EGRESS,
        attack_egress,
        sandboxed=True,
    ),
)
