"""Fault points do nothing without a hook, and each of them is passed by some run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fault_hooks import hooked
from securebench import faults
from securebench.faults import FaultPoint, reached

if TYPE_CHECKING:
    from faults.matrix import Scenario


class _Unprintable:
    def __str__(self) -> str:
        raise AssertionError


def test_nothing_happens_without_a_hook() -> None:
    """Without a hook, a subject is not even converted to text, and children run no additional code."""
    reached(FaultPoint.FILE_WRITE, _Unprintable())
    assert faults.code_for_children() == ""


def test_a_hook_sees_points_until_it_is_removed() -> None:
    """A hook is called with each point and the text of its subject, until the hook is removed."""
    seen = []
    with hooked(lambda *point: seen.append(point)):
        reached(FaultPoint.FILE_WRITE, 7)
        reached(FaultPoint.RUN_DONE)
    reached(FaultPoint.RUN_DONE)
    assert seen == [(FaultPoint.FILE_WRITE, "7"), (FaultPoint.RUN_DONE, "")]


@pytest.mark.slow
@pytest.mark.sandboxes_alone
@pytest.mark.oci
@pytest.mark.engine
def test_every_point_is_passed(on_oci: dict[str, Scenario], on_docker: Scenario, repository_images: None) -> None:
    """Each declared point is passed by a run and is tried in at least one scenario."""
    scenarios = [*on_oci.values(), on_docker]
    tried = {site.point for scenario in scenarios for site in scenario.sites()}
    assert tried == set(FaultPoint)
