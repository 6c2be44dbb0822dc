"""Run a suite: one run after the other, in one output directory, resumable as a whole."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from securebench.errors import ConfigError, SecureBenchError
from securebench.fs.durable import make_directories, storage_errors
from securebench.results.records.commitment import KEY_FILE, Commitment
from securebench.results.run_directory.header import HEADER, read_header
from securebench.results.run_directory.lock import RunLock
from securebench.results.suite import RecordedSuite, read_suite, write_suite
from securebench.results.suite_attestation import SuiteAttestation
from securebench.results.summary import RunEnd, TesterRunSummary
from securebench.tester_run.options import RunOptions, RunParts
from securebench.tester_run.planning.directory import earlier_header, make_directory
from securebench.tester_run.planning.plan import make_plan
from securebench.tester_run.run import run_benchmark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from securebench.progress import Event
    from securebench.tester_config.suite import Suite, SuiteRun
    from securebench.tester_run.planning.plan import Plan

    SinksOf = Callable[[SuiteRun, int], AbstractContextManager[Iterable[Callable[[Event], None]]]]
    """Opens the sinks of a run, given the run and its number, counted from 1."""


@dataclass(frozen=True, slots=True)
class SuiteOutcome:
    """How one run of a suite ended. Without a ``summary``, ``problem`` says why the run could not begin or continue."""

    run: SuiteRun
    directory: Path
    summary: TesterRunSummary | None = None
    problem: str = ""


class SuiteSummary(NamedTuple):
    """How the runs of a suite ended. ``problem`` says why signing the suite failed, if it did."""

    outcomes: list[SuiteOutcome]
    problem: str = ""


def plan_suite(suite: Suite, options: RunOptions, parts: RunParts) -> Iterator[tuple[SuiteRun, Plan]]:
    """Yield the plan of each run. Raises :class:`ConfigError` for a pack or an agent that cannot be used."""
    for run in suite.runs:
        yield run, make_plan(run.config, _options_of(run, _directory(suite, options), options), parts)


def run_suite(
    suite: Suite,
    options: RunOptions,
    sinks: SinksOf,
    parts: RunParts | None = None,
) -> SuiteSummary:
    """Execute the runs of a suite in their order.

    A run that cannot begin or continue does not stop the others; an interrupt does. Raises :class:`ConfigError` before
    the first run if a pack or an agent cannot be used, or if a directory is in use. With ``options.resume``, finished
    runs keep their records, and runs that were added to the suite begin. ``options.sign`` also signs the suite.
    """
    parts = parts or RunParts()
    directory = _directory(suite, options)
    earlier_runs(suite, options)
    for run, plan in plan_suite(suite, options, parts):
        if plan.directory.exists():
            earlier_header(plan.directory, resume=options.resume)
        del run, plan  # a pack may be large
    make_directory(directory)
    with RunLock(directory):
        known = earlier_runs(suite, options)  # read them again: another process may have changed them
        signature = SuiteAttestation(directory, RecordedSuite(suite.id, known))
        signature.require_signer(options.sign)
        # Signatures are removed before anything changes, so that a killed process leaves a valid signature or none.
        signature.remove_signatures()
        commitment = _shared_commitment(directory)
        runs = {run.path: {"pack": run.pack, "agent": run.agent} for run in suite.runs}
        recorded = RecordedSuite(suite.id, {**known, **runs})
        write_suite(directory, recorded)
        outcomes = _execute(suite, options, sinks, replace(parts, new_commitment=lambda: commitment))
        return SuiteSummary(outcomes, _sign(SuiteAttestation(directory, recorded), options))


def _execute(suite: Suite, options: RunOptions, sinks: SinksOf, parts: RunParts) -> list[SuiteOutcome]:
    """Execute the runs, and stop if one is interrupted. Return how each ended."""
    outcomes: list[SuiteOutcome] = []
    for number, run in enumerate(suite.runs, start=1):
        place = _directory(suite, options) / run.path
        own = _options_of(run, _directory(suite, options), options)
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


def _sign(signature: SuiteAttestation, options: RunOptions) -> str:
    """Sign the suite if the user wants that. Return the problem if signing failed."""
    if options.sign is None:
        return ""
    try:
        path = signature.sign(options.sign)
    except SecureBenchError as error:
        return f"the suite could not be signed (--resume tries again): {error}"
    options.notify(f"signed with the {options.sign.name}: {path}")
    return ""


def _directory(suite: Suite, options: RunOptions) -> Path:
    return (options.output_dir or suite.output_dir).absolute()


def _options_of(run: SuiteRun, directory: Path, options: RunOptions) -> RunOptions:
    """Return the options of one run. ``resume`` is set only if the run has begun."""
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
    """Return the runs that the suite's directory lists so far.

    Raises :class:`ConfigError` if the directory contains a run or a different suite, or if it contains this suite and
    ``options.resume`` is off.
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
