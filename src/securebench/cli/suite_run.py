"""``securebench run`` with a suite file: run several agents on several packs."""

from __future__ import annotations

import json
import shlex
import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import click

from securebench.cli import EXIT_INTERRUPTED, complain
from securebench.cli.run_command import EXIT_ERRORS, exit_code, gate, resume_command, sinks_for
from securebench.cli.views.dry_run import planned, planned_lines
from securebench.cli.views.suite import as_json, print_leaderboard, standings
from securebench.printable import printable_line
from securebench.results.read import read_run
from securebench.results.summary import RunEnd
from securebench.tester_config.suite import load_suite
from securebench.tester_run.options import RunParts
from securebench.tester_run.suite import earlier_runs, plan_suite, run_suite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from rich.console import Console

    from securebench.progress import Event
    from securebench.tester_config.loader import TesterFile
    from securebench.tester_config.suite import SuiteRun
    from securebench.tester_run.options import RunOptions
    from securebench.tester_run.suite import SuiteOutcome


def run_suite_file(
    file: TesterFile, options: RunOptions, flags: dict[str, Any], console: Console, echo: Callable[[str], None]
) -> int:
    """Run a suite, or with ``--dry-run`` only plan it. Print the results or the plan, and return the exit code."""
    suite = load_suite(file)
    if flags["dry_run"]:
        earlier_runs(suite, options)
        plans = [planned(plan, options) for _, plan in plan_suite(suite, options, RunParts())]
        click.echo(json.dumps(plans, indent=2) if flags["as_json"] else "\n".join(planned_lines(plans)))
        return 0

    @contextmanager
    def sinks(run: SuiteRun, number: int) -> Iterator[Iterable[Callable[[Event], None]]]:
        if not flags["quiet"]:
            echo(f"\n[run {number} of {len(suite.runs)}] {printable_line(f'{run.pack}, agent {run.agent}')}")
        with ExitStack() as stack:
            yield sinks_for(flags, console, echo, stack)

    outcomes, problem = run_suite(suite, options, sinks)
    if problem:
        complain(problem)
    _report(outcomes, flags, options.output_dir or suite.output_dir)
    if any(outcome.summary and outcome.summary.ending is RunEnd.INTERRUPTED for outcome in outcomes):
        return EXIT_INTERRUPTED
    code = max((exit_code(outcome.summary) if outcome.summary else EXIT_ERRORS for outcome in outcomes), default=0)
    below = gate([outcome.directory for outcome in outcomes if outcome.summary], flags)
    return code or (EXIT_ERRORS if problem else below)


def _report(outcomes: list[SuiteOutcome], flags: dict[str, Any], directory: Path) -> None:
    """Print the problems, the leaderboard, where the results are, and how to compare the runs or resume the suite."""
    left = 0
    for outcome in outcomes:
        name = f"{outcome.run.pack}, agent {outcome.run.agent}"
        problems = outcome.summary.problems if outcome.summary else (outcome.problem,)
        for problem in problems:
            complain(f"{name}: {problem}")
        left += outcome.summary.total.not_run + outcome.summary.errors if outcome.summary else 1
    if flags["as_json"]:
        click.echo(json.dumps(as_json(outcomes), indent=2))
    else:
        from rich.console import Console

        found = standings(read_run(outcome.directory) for outcome in outcomes if outcome.summary)
        if found:
            print_leaderboard(Console(highlight=False), found)
        click.echo(f"Results: {printable_line(str(directory))}")
        if len(found) > 1:
            click.echo(f"Compare: securebench compare {printable_line(shlex.quote(str(directory)))}")
    if left:
        click.echo(f"The suite is not complete. To resume, run:\n  {resume_command(sys.argv[1:])}", err=True)
