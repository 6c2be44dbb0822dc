"""Run a suite: one run after the other, in one output directory, resumable as a whole."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from securebench.errors import ConfigError, SecureBenchError
from securebench.fs.durable import make_directories, storage_errors
from securebench.results.commitment import KEY_FILE, Commitment
from securebench.results.run_header import HEADER, read_header
from securebench.results.suite import RecordedSuite, read_suite, write_suite
from securebench.results.summary import RunEnd, TesterRunSummary
from securebench.tester_run.directory import earlier_header, make_directory
from securebench.tester_run.options import RunOptions, RunParts
from securebench.tester_run.plan import make_plan
from securebench.tester_run.run import run_benchmark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from securebench.progress import Event
    from securebench.tester_config.suite import Suite, SuiteRun
    from securebench.tester_run.plan import Plan


@dataclass(frozen=True, slots=True)
class SuiteOutcome:
    """How one run of a suite ended. Without a summary, ``problem`` says why it could not run."""

    run: SuiteRun
    directory: Path
    summary: TesterRunSummary | None = None
    problem: str = ""


def plan_suite(suite: Suite, options: RunOptions, parts: RunParts) -> Iterator[tuple[SuiteRun, Plan]]:
    """Yield the plan of each run. Raises :class:`ConfigError` for a pack or an agent that cannot be used."""
    for run in suite.runs:
        yield run, make_plan(run.config, _options_of(run, _directory(suite, options), options), parts)


def run_suite(
    suite: Suite,
    options: RunOptions,
    sinks: Callable[[SuiteRun, int], AbstractContextManager[Iterable[Callable[[Event], None]]]],
    parts: RunParts | None = None,
) -> list[SuiteOutcome]:
    """Execute the runs of a suite in their order. ``sinks`` returns the sinks of a run, which counts from 1.

    A run that cannot begin or continue does not stop the others; an interrupt does. Raises :class:`ConfigError` before
    the first run if a pack or an agent cannot be used, or if a directory is in use. With ``options.resume``, finished
    runs keep their records, and runs that were added to the suite begin.
    """
    parts = parts or RunParts()
    directory = _directory(suite, options)
    known = earlier_runs(suite, options)
    for run, plan in plan_suite(suite, options, parts):
        if plan.directory.exists():
            earlier_header(plan.directory, resume=options.resume)
        del run, plan  # a pack may be large
    make_directory(directory)
    commitment = _shared_commitment(directory)
    parts = replace(parts, new_commitment=lambda: commitment)
    runs = {run.path: {"pack": run.pack, "agent": run.agent} for run in suite.runs}
    write_suite(directory, RecordedSuite(suite.id, {**known, **runs}))
    outcomes: list[SuiteOutcome] = []
    for number, run in enumerate(suite.runs, start=1):
        place = directory / run.path
        own = _options_of(run, directory, options)
        try:
            with storage_errors(place.parent):
                make_directories(place.parent)
            with sinks(run, number) as found:
                summary = run_benchmark(run.config, own, found, parts)
        except SecureBenchError as error:
            outcomes.append(SuiteOutcome(run, place, problem=str(error)))
            continue
        outcomes.append(SuiteOutcome(run, place, summary))
        if summary.ending is RunEnd.INTERRUPTED:
            break
    return outcomes


def _directory(suite: Suite, options: RunOptions) -> Path:
    return (options.output_dir or suite.output_dir).absolute()


def _options_of(run: SuiteRun, directory: Path, options: RunOptions) -> RunOptions:
    """Return the options of one run. One that has not begun is not resumed."""
    place = directory / run.path
    return replace(options, output_dir=place, resume=options.resume and read_header(place) is not None)


def _shared_commitment(directory: Path) -> Commitment:
    """Return the commitment key that all runs of the suite use, so that their hidden content can be compared."""
    if os.path.lexists(directory / KEY_FILE):
        return Commitment.read(directory)
    commitment = Commitment.new()
    commitment.write(directory)
    return commitment


def earlier_runs(suite: Suite, options: RunOptions) -> Mapping[str, Mapping[str, Any]]:
    """Return the runs that the suite's directory has so far.

    Raises :class:`ConfigError` if something else is in it, or this suite and it should not be resumed.
    """
    directory = _directory(suite, options)
    earlier = read_suite(directory) if directory.is_dir() else None
    hint = "choose another --output-dir"
    if os.path.lexists(directory / HEADER):
        problem = "contains a run, not a suite"
    elif earlier is not None and earlier.id != suite.id:
        problem = f"contains the suite {earlier.id!r}"
    elif earlier is not None and not options.resume:
        problem, hint = f"already contains the suite {suite.id!r}", f"pass --resume to continue it, or {hint}"
    else:
        return earlier.runs if earlier else {}
    raise ConfigError(f"{directory} {problem}", code="output-dir-in-use", hint=hint)
