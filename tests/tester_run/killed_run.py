"""A run with fakes that kills its own process with SIGKILL, so nothing is flushed or cleaned up.

The process is killed when it reaches a point for the n-th time. A point is a fault point or a call: ``write``,
``half-write`` (half of the data is written before the kill), ``fsync`` or ``replace``.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from run_fakes import FakeProducer
from securebench import faults
from securebench.errors import ImageError
from securebench.execution import retry
from securebench.tester_run import RunOptions, run_benchmark
from tester_run.running import configuration, make_parts, pin_framework

if TYPE_CHECKING:
    from securebench.tasks import AgentView


class Killer:
    """A counter that kills this process when ``point`` is reached for the ``number``-th time."""

    def __init__(self, point: str, number: int) -> None:
        self.point = point
        self.left = number

    def __call__(self, point: str, _subject: str = "") -> None:
        """Count how often the chosen point is reached. Kill this process at the ``number``-th time."""
        if point == self.point:
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def about_to_die(self, point: str) -> bool:
        """Return whether the next call with this point kills the process."""
        return point == self.point and self.left == 1


def install(killer: Killer) -> None:
    """Call the killer at all fault points and before each write, fsync and replace of this process."""
    faults.install(killer)
    real_write, real_fsync, real_replace = os.write, os.fsync, Path.replace

    def write(descriptor: int, data: bytes) -> int:
        killer("write")
        if killer.about_to_die("half-write"):
            real_write(descriptor, data[: len(data) // 2])
        killer("half-write")
        return real_write(descriptor, data)

    def fsync(descriptor: int) -> None:
        killer("fsync")
        real_fsync(descriptor)

    def replace(source: Path, target: Path) -> Path:
        killer("replace")
        return real_replace(source, target)

    for owner, name, call in ((os, "write", write), (os, "fsync", fsync), (Path, "replace", replace)):
        setattr(owner, name, call)


def main(root: Path, point: str, number: int, *, resume: bool = False, trials: int | None = None) -> None:
    """Run the pack in ``root`` until the process is killed. Global state changes, so call it in a new process."""
    install(Killer(point, number))
    pin_framework()
    retry.BACK_OFF = ()  # no pauses

    def first_run_has_errors(_: int, view: AgentView, __: Any) -> None:
        if view.task_id.endswith(("1", "2")) and not resume:
            raise ImageError("gone")

    parts = make_parts(FakeProducer(hook=first_run_has_errors, trajectory="{}"))
    run_benchmark(configuration(root), RunOptions(workers=1, resume=resume, trials=trials), (), parts)
