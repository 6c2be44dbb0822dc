"""Measure how long each phase of a task takes, by family and driver: ``make profile``.

Tasks run one at a time. The events of a run show when a phase begins and ends. The agents only write a known answer, so
the agent's phase is the cost of running a command. The phase ``judge`` includes the tests or the checker.

    make profile                                     all families on crun and Docker, two minutes
    make profile ARGS="--drivers crun --tasks 5"     a quick look
    make profile ARGS=--docs                         update the table in the documentation
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import repo_patch
from measure import descendants, machine
from overhead import CODE_ROW, TEXT_ROW
from report import ROOT, Table, update_page
from rich.console import Console
from runs import Workload, repeated
from sides import usable

from securebench import __version__
from securebench.progress import EventKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sides import Side

    from securebench.progress import Event

PAGE: Final = ROOT / "docs" / "explanation" / "speed.md"
PHASES: Final = ("plan", "agent's sandbox", "agent", "seal", "verifier's sandbox", "judge", "record")
FAMILIES: Final[dict[str, tuple[dict[str, Any], tuple[str, ...]]]] = {
    "multiple_choice": (TEXT_ROW, ("/bin/echo", "A")),
    "short_answer": (
        {
            "family": "short_answer",
            "input": {"question": "What is six times seven?"},
            "eval": {"accepted_answers": ["42"]},
        },
        ("/bin/echo", "42"),
    ),
    "free_response": (
        {
            "family": "free_response",
            "input": {"prompt": "Which gas do plants take from the air?"},
            "eval": {"rubric": {"type": "contains_any", "accepted_answers": ["carbon dioxide"]}},
        },
        ("/bin/echo", "They take carbon dioxide."),
    ),
    "code_completion": (CODE_ROW, ("/bin/echo", "def double(n): return 2 * n")),
    "terminal_task": (
        {
            "family": "terminal_task",
            "input": {"instructions": "Sort the letters b, c and a into out."},
            "environment": {"workdir": "/app"},
            "eval": {
                "checker": {"command": ["python3", "-I", "-c", "import sys; sys.exit(open('out').read() != 'abc')"]}
            },
        },
        ("/bin/sh", "-c", "printf abc > out"),
    ),
}
"""A row and the command of an agent that solves it, for each family that has a verifier, except ``repo_patch``."""
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_USED: Final = slice(11, 15)
"""Fields of ``/proc/PID/stat`` after the name: user and kernel time of the process and of children it waited for."""


_FOLLOWING: Final = {
    ("", EventKind.TASK_START): "plan",
    ("", EventKind.PRODUCER_START): "agent's sandbox",
    ("agent's sandbox", EventKind.SANDBOX_START): "agent",
    ("agent", EventKind.SANDBOX_RESULT): "seal",
    ("", EventKind.VERIFIER_START): "verifier's sandbox",
    ("verifier's sandbox", EventKind.SANDBOX_START): "judge",
    ("", EventKind.VERIFIER_DONE): "record",
    ("", EventKind.TASK_DONE): "end",
}
"""The phase that begins, for each pair of current phase and event. An empty current phase means any phase."""


class Phases:
    """An event sink that stores the time of each phase of each task, and the processor time if ``cpu`` is given.

    The processor time between two events belongs to the phase that ends with the second event. It may include
    background work that an earlier phase started.
    """

    def __init__(self, cpu: Callable[[], float] | None) -> None:
        self.wall: dict[str, list[float]] = {}
        self.used: dict[str, float] = {}
        self._cpu, self._cpu_before = cpu or float, cpu() if cpu else 0.0
        self._phase: dict[str, tuple[str, float]] = {}
        """The phase of each task, and when it began. A task may begin before the previous task is recorded."""

    def __call__(self, event: Event) -> None:
        """Store the time of the phase that ends, and which phase begins."""
        now = time.monotonic()
        phase, began = self._phase.get(event.task_id, ("", 0.0))
        following = _FOLLOWING.get((phase, event.kind)) or _FOLLOWING.get(("", event.kind))
        if following is None:
            return
        if phase == "verifier's sandbox" and following == "record":
            phase = "judge"  # text is judged without a sandbox
        cpu = self._cpu()
        if phase:
            self.wall.setdefault(phase, []).append(now - began)
            # If a process exits and no parent waits for it, the sum loses its time, so the difference may be negative.
            self.used[phase] = self.used.get(phase, 0.0) + max(0.0, cpu - self._cpu_before)
        self._cpu_before = self._cpu()  # the time that this method uses belongs to no phase
        self._phase[event.task_id] = ("" if following == "end" else following, time.monotonic())


def main() -> None:
    """Measure the phases, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", type=int, default=40, help="tasks of each family; Docker runs a quarter of them")
    parser.add_argument(
        "--drivers",
        default="crun,docker",
        help="comma-separated list of docker, crun, runc and runsc (default: %(default)s)",
    )
    parser.add_argument("--docs", action="store_true", help=f"update {PAGE.relative_to(ROOT)}")
    arguments = parser.parse_args()
    sides, left_out = usable(arguments.drivers.split(","))
    table = Table("ms per task: time (processor time)", ("family", "driver", *PHASES, "all"))
    with tempfile.TemporaryDirectory(prefix="securebench-profile-") as scratch:
        directory = Path(scratch).resolve()
        directory.chmod(0o711)
        for side in sides:
            tasks = max(2, arguments.tasks // 4) if side.is_docker else arguments.tasks
            for family, workload in _workloads(side, directory, tasks):
                table.add(f"`{family}`", side.name, *_measured(workload, side, directory))
    table.notes += left_out
    table.notes += [
        "In ms: the median time and, in brackets, the mean processor time, which is not known for Docker's containers.",
        f"Measured on {machine()}, SecureBench {__version__}.",
    ]
    table.show(Console(width=None if sys.stdout.isatty() else 160))
    if arguments.docs:
        update_page(PAGE, "make profile", [table])


def _workloads(side: Side, scratch: Path, tasks: int) -> Iterator[tuple[str, Workload]]:
    for family, (row, command) in FAMILIES.items():
        yield family, repeated(scratch, row, tasks, command)
    with repo_patch.image([side]) as image:
        yield "repo_patch", repeated(scratch, repo_patch.row(image), tasks, repo_patch.AGENT)


def _measured(workload: Workload, side: Side, scratch: Path) -> Iterator[str]:
    """Yield a cell for each phase, and a cell for the sum of all phases.

    A cell has the median time of a task and, except for Docker, its mean processor time, both in ms.
    """
    workload.run_here(side, 1, scratch)  # the first run unpacks the image
    phases = Phases(None if side.is_docker else _own_and_children)
    workload.run_here(side, 1, scratch, [phases])
    walls = [statistics.median(phases.wall.get(phase, [0.0])) * 1000 for phase in PHASES]
    used = [phases.used.get(phase, 0.0) / workload.tasks * 1000 for phase in PHASES]
    for wall, cpu in zip([*walls, sum(walls)], [*used, sum(used)], strict=True):
        yield "" if not wall else f"{wall:.0f}" if side.is_docker else f"{wall:.0f} ({cpu:.0f})"


def _own_and_children() -> float:
    """Return the processor seconds of this process and its descendants.

    A descendant that has ended is included only if its parent waited for it.
    """
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = time.process_time() + ended.ru_utime + ended.ru_stime
    for process in descendants("self"):
        with suppress(OSError):
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            seconds += sum(map(int, fields[_USED])) / _TICKS
    return seconds


if __name__ == "__main__":
    main()
