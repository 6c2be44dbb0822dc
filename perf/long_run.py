"""Measure whether anything grows too much in very long runs on the oci driver: ``make bench-long``.

There are two runs of ``securebench run``: one with 10,000 text tasks and one with 2,000 code tasks. During a run, the
memory of its processes and the size of the journal are sampled. After certain shares of the tasks (``SHARES``), the run
directory is copied, as if the run had been killed at that moment. After the run, ``status`` and ``show`` read each copy
and the finished run. Each copy and the finished run are also resumed, but only until the first task would start.

    make bench-long                                    all of it
    make bench-long ARGS="--text 300 --code 60"        a short one, to try this program
    make bench-long ARGS="--text 0"                    only the code tasks
    make bench-long ARGS=--docs                        all of it; then update the documentation's figures and plot
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from measure import descendants, machine, memory_mib, run_measured
from overhead import CODE_ROW, TEXT_ROW
from report import ROOT, Table, update_page, with_limit
from rich.console import Console
from runs import SECUREBENCH, Workload, repeated
from sides import Side

from securebench import __version__
from securebench.candidates.store import UNFINISHED
from securebench.results.run_directory.files import JOURNAL
from securebench.tester_config import load_tester_config
from securebench.tester_run import RunOptions, run_benchmark

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from securebench.progress import Event

RESULTS: Final = ROOT / ".cache" / "long-run"
PAGE: Final = ROOT / "docs" / "explanation" / "long-runs.md"
PLOT: Final = PAGE.with_name("long-runs.svg")
SHARES: Final = (0.1, 0.25, 0.5, 0.75, 1.0)
"""The shares of a run that are compared. A run is copied after each share except the last (the finished run)."""
COMMANDS: Final = ("status", "show", "resume")
"""The commands that read a run. For each, :class:`Checkpoint` has a field of the same name."""
ROUNDS: Final = 3
"""How often a copy is read and resumed. The least time counts, because other programs can only add to it."""
LINEAR_BOUND: Final = 1.5
"""Limit for the cost of a record in the second half of a run, as a multiple of that in the first half."""
MEASURABLE: Final = 1.0
"""The smallest difference that is evaluated, in processor seconds: the time of one process varies by some tenths."""
FLAT_BOUND: Final = 2.0
"""Limit for the memory that the coordinator keeps for each task, in KiB."""
_UNIQUE: Final = "read -r id < /proc/sys/kernel/random/uuid; "
"""Makes each answer different, like those of real agents."""
KINDS: Final = {
    "text": (TEXT_ROW, f'{_UNIQUE}echo "This is thought $id."; echo "Answer: A"'),
    "code": (CODE_ROW, f'{_UNIQUE}echo "# $id"; echo "def double(n): return 2 * n"'),
}
_PARTS: Final = frozenset({JOURNAL, "candidates", "workspaces"})
"""Parts of the run directory that grow with the number of tasks."""
_BLOCK: Final = 512
_SAMPLE_SECONDS: Final = 0.5
_MOST_POINTS: Final = 200
"""Maximum number of points of a line in the plot."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The resources of a run when ``done`` of its tasks were done. ``driver_mib`` includes the sandboxes."""

    seconds: float
    done: int
    coordinator_mib: float
    driver_mib: float
    journal_mib: float


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Processor seconds of processes that read a run of ``records`` records. ``resume_wall`` is elapsed seconds."""

    records: int
    status: float
    show: float
    resume: float
    resume_wall: float


@dataclass(slots=True)
class LongRun:
    """The figures of one run.

    ``disk`` maps each part of the run directory to its bytes on the disk and its number of files and directories.
    """

    kind: str
    tasks: int
    workers: int
    seconds: float = 0.0
    where: str = ""
    """The date, the machine and the version of SecureBench."""
    samples: list[Sample] = field(default_factory=list)
    checkpoints: list[Checkpoint] = field(default_factory=list)
    disk: dict[str, tuple[int, int]] = field(default_factory=dict)

    def measure(self, scratch: Path) -> None:
        """Execute the run and fill in the figures."""
        row, program = KINDS[self.kind]
        workload = repeated(scratch, row, self.tasks, ("/bin/sh", "-c", program))
        config = workload.write(Side("crun"), scratch)
        directory = config.parent / "results"
        argv = (*SECUREBENCH, "run", "--quiet", "--json", "--workers", str(self.workers), str(config))
        started = time.time()
        with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as process:
            try:
                copies = self._watch(process, config, directory, started)
            except BaseException:
                process.send_signal(signal.SIGTERM)
                raise
        self.seconds = (directory / JOURNAL).stat().st_mtime - started
        if process.returncode:
            raise SystemExit(f"the run of {self.kind} tasks exited with code {process.returncode}")
        self._require_passed(directory, workload)
        self.disk = _disk(directory)
        self.checkpoints = [self._checkpoint(config, copy) for copy in (*copies, directory)]
        self.where = f"{machine()}, SecureBench {__version__}"

    def _watch(self, process: subprocess.Popen[bytes], config: Path, directory: Path, started: float) -> list[Path]:
        """Sample the run until it ends. Return the copies of the run."""
        journal, done, position, left = directory / JOURNAL, 0, 0, list(SHARES[:-1])
        copies = list[Path]()
        while process.poll() is None:
            time.sleep(_SAMPLE_SECONDS)
            with suppress(OSError):
                with journal.open("rb") as file:
                    file.seek(position)
                    new = file.read()
                done, position = done + new.count(b"\n"), position + len(new)
                memory, others = _memory(process.pid)
                if not (memory and others):
                    continue  # the run is starting or ending
                self.samples.append(Sample(time.time() - started, done, memory, others, position / 2**20))
            if left and done >= left[0] * self.tasks and done < self.tasks:
                copies.append(_killed_copy(directory, config.parent / f"copy-{left.pop(0)}"))
        return copies

    @staticmethod
    def _checkpoint(config: Path, directory: Path) -> Checkpoint:
        records = (directory / JOURNAL).read_bytes().count(b"\n")
        status, show = ((*SECUREBENCH, *command, str(directory)) for command in (("status", "--json"), ("show",)))
        resume = (sys.executable, __file__, "--resume-only", str(config), str(directory))
        rounds = [
            (run_measured(status)[0].cpu, run_measured(show)[0].cpu, *json.loads(run_measured(resume)[1]))
            for _ in range(ROUNDS)
        ]
        return Checkpoint(records, *map(min, zip(*rounds, strict=True)))

    @staticmethod
    def _require_passed(directory: Path, workload: Workload) -> None:
        """Raise ``SystemExit`` unless each task passed."""
        found = json.loads(run_measured((*SECUREBENCH, "status", "--json", str(directory)))[1])
        if found["passed"] != workload.tasks:
            raise SystemExit(
                f"only {found['passed']} of {workload.tasks} tasks passed, so the figures would be meaningless"
            )

    def write(self) -> None:
        """Write the figures to a file."""
        RESULTS.mkdir(parents=True, exist_ok=True)
        (RESULTS / f"{self.kind}.json").write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def read(cls, kind: str) -> LongRun:
        """Return the figures that the last run of this kind wrote."""
        found = json.loads((RESULTS / f"{kind}.json").read_text())
        found["samples"] = [Sample(**one) for one in found["samples"]]
        found["checkpoints"] = [Checkpoint(**one) for one in found["checkpoints"]]
        return cls(**found)

    def tables(self) -> Iterator[Table]:
        """Yield the tables of growth and of disk space."""
        title = f"{self.tasks:,} {self.kind} tasks, {self.workers} workers"
        rate = self.tasks / self.seconds
        growth = Table(
            f"{title}: {self.seconds / 60:.1f} minutes, {rate:.1f} tasks/s",
            (
                "records",
                "coordinator MiB",
                "driver and sandboxes MiB",
                "journal MiB",
                "status, CPU s",
                "show, CPU s",
                "resume, CPU s",
            ),
        )
        for found in self.checkpoints:
            near = min(self.samples, key=lambda sample, at=found.records: abs(sample.done - at))  # type: ignore[misc]
            growth.add(
                f"{found.records:,}",
                *(near.coordinator_mib, near.driver_mib, near.journal_mib),
                *(getattr(found, command) for command in COMMANDS),
            )
        growth.notes += [
            f"{title}: {self.seconds / 60:.1f} minutes, {rate:.1f} tasks/s. Measured on {self.where}.",
            f"Coordinator memory per task: {with_limit(self._kept_kib(), FLAT_BOUND, ' KiB')}.",
            *map(self._growth, COMMANDS),
        ]
        yield growth
        disk = Table(f"{title}: disk", ("part of the run directory", "KiB per task", "files per task"))
        for name, (size, files) in self.disk.items():
            disk.add(name, size / 1024 / self.tasks, files / self.tasks)
        yield disk

    def _kept_kib(self) -> float:
        """Return how many KiB the coordinator grew per task after the first quarter of the run."""
        settled = [sample for sample in self.samples if sample.done >= self.tasks / 4] or self.samples[-1:]
        first, last = settled[0], settled[-1]
        return (last.coordinator_mib - first.coordinator_mib) * 1024 / max(1, last.done - first.done)

    def _growth(self, command: str) -> str:
        """Return a sentence that compares the costs per record of ``command`` in the two halves of the run."""
        first, middle, last = self.checkpoints[0], self.checkpoints[len(self.checkpoints) // 2], self.checkpoints[-1]
        if abs(growth := getattr(last, command) - getattr(first, command)) < MEASURABLE:
            return (
                f"`{command}`: its time changed by only {growth:.1f} s from the first measurement to the last. This "
                "is too little to tell whether a record costs more in the second half of the run."
            )
        early, late = (
            (getattr(end, command) - getattr(begin, command)) / max(1, end.records - begin.records)
            for begin, end in ((first, middle), (middle, last))
        )
        ratio = with_limit(late / early if early > 0 else float("inf"), LINEAR_BOUND)
        return f"`{command}`, cost per record in the second half of the run relative to the first half: {ratio}."


def main() -> None:
    """Measure the runs with at least one task, or print how long it takes to resume a run."""
    arguments = _arguments()
    if arguments.resume_only:
        _resume(*arguments.resume_only)
    console = Console(width=None if sys.stdout.isatty() else 120)
    with tempfile.TemporaryDirectory(prefix="securebench-long-", dir=arguments.directory) as scratch:
        Path(scratch).chmod(0o711)
        for run in (
            LongRun("text", arguments.text, arguments.workers),
            LongRun("code", arguments.code, arguments.workers),
        ):
            if run.tasks:
                run.measure(Path(scratch).resolve())
                run.write()
                for table in run.tables():
                    table.show(console)
    if arguments.docs:
        runs = [LongRun.read(kind) for kind in KINDS]
        update_page(PAGE, "make bench-long", [table for run in runs for table in run.tables()])
        PLOT.write_text(plot(runs), encoding="utf-8")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--text", type=int, default=10_000, help="text tasks (default: %(default)s)")
    parser.add_argument("--code", type=int, default=2_000, help="code tasks (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 2, help="tasks at once (default: %(default)s)")
    parser.add_argument(
        "--directory", type=Path, help="where to keep the runs while they are measured (default: $TMPDIR)"
    )
    parser.add_argument("--docs", action="store_true", help=f"update {PAGE.relative_to(ROOT)} and its plot")
    parser.add_argument("--resume-only", nargs=2, type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def _resume(config: Path, directory: Path) -> None:
    """Resume a run up to the moment when its first task would start. Print its processor and elapsed seconds."""
    started = time.monotonic()

    def stop(event: Event) -> None:
        if event.kind == "run_start":
            print(json.dumps((time.process_time(), time.monotonic() - started)), flush=True)
            os._exit(0)

    run_benchmark(load_tester_config(config), RunOptions(resume=True, output_dir=directory), [stop])


def _killed_copy(directory: Path, copy: Path) -> Path:
    """Return a copy of a run in progress, as if it had been killed.

    Sealed candidates never change, so they are linked. Unfinished ones are left out: they may disappear at any time.
    """
    copy.mkdir()
    for path in directory.iterdir():  # records are copied first: a candidate is stored before its record
        with suppress(FileNotFoundError):  # the run may be replacing the file
            if path.is_file():
                shutil.copy2(path, copy)
    unfinished = shutil.ignore_patterns(f"{UNFINISHED}*")
    shutil.copytree(directory / "candidates", copy / "candidates", copy_function=os.link, ignore=unfinished)
    return copy


def _memory(process: int) -> tuple[float, float]:
    """Return the memory of the coordinator, and that of the driver and its sandboxes together, in MiB."""
    return memory_mib(process), sum(map(memory_mib, descendants(process)))


def _disk(directory: Path) -> dict[str, tuple[int, int]]:
    """Return the bytes on the disk and the number of files and directories for each part of the run directory."""
    found = {"all": (0, 0)}
    for part in sorted(directory.iterdir()):
        paths = (part, *part.rglob("*"))
        size = sum(path.lstat().st_blocks * _BLOCK for path in paths)
        name = f"`{part.name}`" if part.name in _PARTS else "the rest"
        for key in (name, "all"):
            found[key] = (found.get(key, (0, 0))[0] + size, found.get(key, (0, 0))[1] + len(paths))
    return dict(sorted(found.items(), key=lambda part: -part[1][0]))


def plot(runs: Sequence[LongRun]) -> str:
    """Return plots of memory, journal size and reading time against the number of finished tasks, as SVG."""
    import vl_convert

    rows = [_panels(run) for run in runs]
    spec = {"background": "white", "config": {"view": {"stroke": None}}, "vconcat": rows}
    svg: str = vl_convert.vegalite_to_svg(json.dumps(spec), allowed_base_urls=[])
    return svg


def _panels(run: LongRun) -> dict[str, Any]:
    done = {"field": "done", "type": "quantitative", "title": f"{run.kind} tasks done"}
    samples = [asdict(sample) for sample in run.samples[:: 1 + len(run.samples) // _MOST_POINTS]]
    memory = [
        {"done": sample["done"], "process": name, "MiB": sample[key]}
        for sample in samples
        for name, key in (("coordinator", "coordinator_mib"), ("driver and sandboxes", "driver_mib"))
    ]
    reading = [
        {"done": found.records, "command": command, "seconds": getattr(found, command)}
        for found in run.checkpoints
        for command in COMMANDS
    ]
    journal = {"y": {"field": "journal_mib", "type": "quantitative", "title": "journal, MiB"}}
    return {
        "hconcat": [
            _panel(memory, {"x": done, **_lines("MiB", "memory, MiB", "process")}, "line"),
            _panel(samples, {"x": done, **journal}, "line"),
            _panel(
                reading, {"x": done, **_lines("seconds", "CPU seconds", "command")}, {"type": "line", "point": True}
            ),
        ],
        "resolve": {"scale": {"color": "independent"}},
    }


def _lines(value: str, title: str, names: str) -> dict[str, Any]:
    return {
        "y": {"field": value, "type": "quantitative", "title": title},
        "color": {"field": names, "type": "nominal", "title": None, "legend": {"orient": "top"}},
    }


def _panel(values: list[dict[str, Any]], encoding: dict[str, Any], mark: str | dict[str, Any]) -> dict[str, Any]:
    return {"width": 220, "height": 150, "data": {"values": values}, "mark": mark, "encoding": encoding}


if __name__ == "__main__":
    main()
