"""The matrix of fault points and kinds of faults.

A clean run shows which points runs pass, and how often. Then faults are tried at these points, one in each run.
"""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from faults.hook import Fault, FaultKind
from faults.runs import FaultRun, NotReachedError, try_fault
from securebench.candidates.store import CANDIDATES
from securebench.faults import FaultPoint
from securebench.results.run_directory.files import JOURNAL, SUPERSEDED
from tester_run.real_run import anonymous

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import Any

    from faults.server import ForkServer
    from securebench.sandboxes.base import SandboxDriver

FILES = frozenset(point for point in FaultPoint if point.startswith(("file.", "directory.", "candidate.")))
ENGINE = frozenset(point for point in FaultPoint if point.startswith(("engine.", "sandbox.")))
RECORDS = frozenset({JOURNAL, SUPERSEDED, CANDIDATES})
IMAGE_TREES = frozenset({FaultPoint.IMAGE_LEASE, FaultPoint.SANDBOX_COLLECT})


@dataclass(frozen=True)
class Site:
    """A point with the label of its subject. The processes of a clean run pass it ``times`` times in total."""

    point: str
    subject: str
    times: int

    def faults(self) -> Iterator[Fault]:
        """Yield the faults to try. Errors are injected the first and the last time that the point is passed.

        A kill and a delay are each injected once, halfway between.
        """
        for kind in FaultKind:
            numbers = {1, self.times} if kind is FaultKind.ERROR else {(self.times + 1) // 2}
            for number in sorted(numbers):
                fault = Fault(self.point, self.subject, number, kind)
                if fault.is_possible:
                    yield fault


class Scenario:
    """One kind of run in which faults are tried. It is compared with a clean run of the same kind.

    Faults are tried at ``points``. If ``subjects`` is not empty, they are tried only for these labels. Other scenarios
    cover other points and labels. ``make`` returns a new run in a directory.
    """

    def __init__(
        self,
        name: str,
        points: frozenset[FaultPoint],
        make: Callable[[Path], FaultRun],
        root: Path,
        subjects: frozenset[str] = frozenset(),
    ) -> None:
        self.name = name
        self._points = points
        self._subjects = subjects
        self._make = make
        self._root = root
        self._number = 0

    def try_one(self, fault: Fault) -> str:
        """Try ``fault`` on a new run, and return its outcome. See :func:`try_fault`.

        How often a run passes a point can depend on the order of events. If the run passes the point fewer than
        ``fault.number`` times, decrease the number by one and try again on another run.
        """
        self._number += 1
        run = self._make(self._root / f"{self.name}-{self._number}")
        try:
            outcome = try_fault(run, fault, self.clean)
        except NotReachedError:
            if fault.number == 1:
                raise
            return self.try_one(replace(fault, number=fault.number - 1))
        shutil.rmtree(run.root)
        return outcome

    def sites(self) -> list[Site]:
        """Return the sites at which this scenario tries faults."""
        return [
            Site(point, subject, times)
            for (point, subject), times in sorted(self.passed.items())
            if point in self._points and (not self._subjects or subject in self._subjects)
        ]

    @property
    def clean(self) -> list[dict[str, Any]]:
        """The comparable records of a clean run."""
        return self._clean_run[0]

    @property
    def passed(self) -> Counter[tuple[str, str]]:
        """How often a clean run passes each point, by point and label."""
        return self._clean_run[1]

    @cached_property
    def _clean_run(self) -> tuple[list[dict[str, Any]], Counter[tuple[str, str]]]:
        run = self._make(self._root / f"{self.name}-clean")
        done = run.go()
        assert done.returncode == 0, done.stderr
        return anonymous(run.root), Counter(run.passed)


def oci_scenarios(root: Path, driver: SandboxDriver, server: ForkServer) -> list[Scenario]:
    """Return the scenarios on an oci driver: a run, a resumed run, and a run with a repository task."""

    def new(place: Path) -> FaultRun:
        return FaultRun(place, driver, server)

    def half_done(place: Path) -> FaultRun:
        """Return a run of three tasks: one has a verdict, one only a candidate, and the agent of one did not run."""
        run = new(place)
        run.go(Fault(FaultPoint.VERDICT_DONE, "", 2, FaultKind.ERROR))
        return run

    def over_repository(place: Path) -> FaultRun:
        return FaultRun(place, driver, server, repository=True)

    everything = frozenset(FaultPoint) - IMAGE_TREES - {FaultPoint.ENGINE_REQUEST}
    return [
        Scenario("run", everything, new, root),
        Scenario("resume", FILES, half_done, root, RECORDS),
        Scenario("repository", IMAGE_TREES, over_repository, root),
    ]


def docker_scenario(root: Path, driver: SandboxDriver, server: ForkServer) -> Scenario:
    """Return the scenario of a run on the Docker driver."""
    return Scenario("docker", ENGINE, lambda place: FaultRun(place, driver, server), root)
