"""Runs that are killed, fail or wait at a fault point: each record is that of a clean run or has the status ``error``.

A few faults are always tried, and all of them with ``--long``. ``python -m scripts.faults`` tries all of them, too, and
writes the tables in docs/reference/faults.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from faults.hook import Fault
from securebench.faults import FaultPoint

if TYPE_CHECKING:
    from collections.abc import Iterable

    from faults.matrix import Scenario

pytestmark = pytest.mark.sandboxes_alone

SAMPLE = [
    ("run", Fault("file.sync", "candidates.jsonl", 2, "kill")),
    ("run", Fault("file.rename", "run.json", 1, "error")),
    ("run", Fault("runtime.start", "exec", 1, "kill")),
    ("run", Fault("gateway.serve", "close", 1, "error")),
    ("resume", Fault("candidate.read", "candidates", 1, "error")),
]
ON_DOCKER = sorted(
    {point for point in FaultPoint if point.startswith(("engine.", "sandbox."))} - {FaultPoint.SANDBOX_COLLECT}
)
"""The points at which faults are tried on Docker.

``SANDBOX_COLLECT`` is left out: only a run with a repository task passes it.
"""


@pytest.mark.oci
@pytest.mark.slow
@pytest.mark.parametrize(("name", "fault"), SAMPLE, ids=str)
def test_a_sample(on_oci: dict[str, Scenario], name: str, fault: Fault) -> None:
    """A run with a fault loses no record, gives no wrong verdict and leaves nothing behind."""
    on_oci[name].try_one(fault)


def _try_all(scenarios: Iterable[Scenario], point: FaultPoint) -> None:
    """Try each fault at ``point`` in each of the scenarios. At least one of them has to pass the point."""
    sites = [(scenario, site) for scenario in scenarios for site in scenario.sites() if site.point == point]
    assert sites, f"no run passed {point}"
    failures = []
    for scenario, site in sites:
        for fault in site.faults():
            try:
                scenario.try_one(fault)
            except AssertionError as error:
                failures.append(f"{scenario.name}: {fault}: {error}")
    assert not failures, "\n".join(failures)


@pytest.mark.oci
@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("point", [point for point in FaultPoint if point is not FaultPoint.ENGINE_REQUEST])
def test_every_fault(on_oci: dict[str, Scenario], repository_images: None, point: FaultPoint) -> None:
    """Each fault at ``point`` is tried in each scenario that passes the point. At least one scenario passes it."""
    _try_all(on_oci.values(), point)


@pytest.mark.engine
@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("point", ON_DOCKER)
def test_every_fault_on_docker(on_docker: Scenario, point: FaultPoint) -> None:
    """Each fault at ``point`` is tried in a run on Docker, which passes the point."""
    _try_all([on_docker], point)
