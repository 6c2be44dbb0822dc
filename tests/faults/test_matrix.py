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
    from faults.matrix import Scenario

pytestmark = pytest.mark.sandboxes_alone

SAMPLE = [
    ("run", Fault("file.sync", "candidates.jsonl", 2, "kill")),
    ("run", Fault("file.rename", "run.json", 1, "error")),
    ("run", Fault("runtime.start", "exec", 1, "kill")),
    ("run", Fault("gateway.serve", "close", 1, "error")),
    ("resume", Fault("candidate.read", "candidates", 1, "error")),
]


@pytest.mark.oci
@pytest.mark.slow
@pytest.mark.parametrize(("name", "fault"), SAMPLE, ids=str)
def test_a_sample(on_oci: dict[str, Scenario], name: str, fault: Fault) -> None:
    """A run with a fault loses no record, gives no wrong verdict and leaves nothing behind."""
    on_oci[name].try_one(fault)


def _try_all(scenario: Scenario, point: FaultPoint) -> None:
    failures = []
    for site in scenario.sites():
        for fault in site.faults() if site.point == point else ():
            try:
                scenario.try_one(fault)
            except AssertionError as error:
                failures.append(f"{fault}: {error}")
    assert not failures, "\n".join(failures)


@pytest.mark.oci
@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("point", FaultPoint)
def test_every_fault(on_oci: dict[str, Scenario], repository_images: None, point: FaultPoint) -> None:
    """Each fault at ``point`` is tried in each scenario that passes the point."""
    for scenario in on_oci.values():
        _try_all(scenario, point)


@pytest.mark.engine
@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("point", sorted(point for point in FaultPoint if point.startswith(("engine.", "sandbox."))))
def test_every_fault_on_docker(on_docker: Scenario, point: FaultPoint) -> None:
    """Each fault at ``point``, a call of a driver or a request to an engine, is tried on the Docker driver."""
    _try_all(on_docker, point)
