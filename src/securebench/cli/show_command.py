"""``securebench show``: show the results of a run, or one task in detail."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from securebench.cli import complain
from securebench.printable import printable_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from securebench.results.read import RecordedRun
    from securebench.results.recorded_task import RecordedTask
    from securebench.results.suite import RecordedSuite

EXIT_DAMAGED = 1

EXAMPLES = """\b
Examples:
  securebench show results
  securebench show results --failed
  securebench show results arithmetic/sum-17 --full
"""

_OF_A_TASK = ("trial", "full")
_OF_A_LIST = ("every", "failed", "errors", "reason")


@click.command(name="show", epilog=EXAMPLES)
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.argument("task_id", metavar="[TASK]", required=False)
@click.option("--trial", type=click.IntRange(min=1), help="Which trial of TASK.  [default: 1]")
@click.option("--full", is_flag=True, help="Show all steps of a task, and do not shorten texts.")
@click.option("--all", "every", is_flag=True, help="List all tasks that have a record.")
@click.option("--failed", is_flag=True, help="List the tasks that failed.")
@click.option("--errors", is_flag=True, help="List the tasks that ended in an infrastructure error.")
@click.option("--reason", metavar="REASON", help="List the tasks with this failure reason.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")
@click.pass_context
def command(ctx: click.Context, /, directory: Path, task_id: str | None, *, as_json: bool, **flags: Any) -> None:
    """Show the results of a run or a suite, or one task in detail.

    DIR is the output directory of a run, which may still be in progress. Without TASK, a list of tasks is shown if an
    option asks for it, otherwise the summary. For the output directory of a suite, the leaderboard of its runs is
    shown.

    Exit codes: 0 shown; 1 DIR has no run or suite, or is damaged, or there is no such task; 2 wrong usage.
    """
    from securebench.results.read import read_run
    from securebench.results.suite import read_suite

    wants_list = any(flags[name] for name in _OF_A_LIST)
    if task_id is not None and wants_list:
        raise click.UsageError("--all, --failed, --errors and --reason list tasks: give them without TASK")
    if task_id is None and any(flags[name] for name in _OF_A_TASK):
        raise click.UsageError("--trial and --full are about one task: give TASK, too")
    reason = _known_reason(flags["reason"])
    if suite := read_suite(directory):
        if task_id is not None or wants_list:
            raise click.UsageError(f"{directory} is a suite: to see tasks, give the directory of one of its runs")
        _show_suite(directory, suite, as_json=as_json)
        return
    run = read_run(directory)
    if task_id is not None:
        ctx.exit(_show_task(run, run.find(task_id, flags["trial"] or 1), full=flags["full"], as_json=as_json))
    found = _matching(run, failed=flags["failed"], errors=flags["errors"], reason=reason)
    if as_json:
        listed = {"records": [_brief(record) for record in found]} if wants_list else {}
        click.echo(json.dumps({**_about(run), **listed}, indent=2))
    elif wants_list:
        _list(found, run.trials)
    else:
        _show_summary(run)


def _known_reason(name: str | None) -> str | None:
    """Return ``name``. Raises ``click.BadParameter``, which suggests similar names, if it is not a failure reason."""
    from securebench.errors import FailureReason
    from securebench.strict_input.faults import did_you_mean

    known = {reason.value for reason in FailureReason}
    if name is not None and name not in known:
        raise click.BadParameter(
            f"{name!r} is not a failure reason; {did_you_mean(name, known)}", param_hint="--reason"
        )
    return name


def _matching(run: RecordedRun, *, failed: bool, errors: bool, reason: str | None) -> Iterator[RecordedTask]:
    """Yield the records with the given status and reason.

    ``failed`` and ``errors`` select a status each. If neither is set, every status matches. If ``reason`` is ``None``,
    every reason matches.
    """
    wanted = {name for name, is_wanted in (("failed", failed), ("error", errors)) if is_wanted}
    for record in run.records():
        if (not wanted or record.status in wanted) and (reason is None or record.reason == reason):
            yield record


def _list(records: Iterator[RecordedTask], trials: int) -> None:
    """Print a line for each record: in color on a terminal, with tabs between the columns elsewhere.

    ``trials`` is the number of trials of each task in the run.
    """
    from rich.text import Text

    from securebench.cli.views.live import STYLES

    console = _console()
    for record in records:
        status, reason = record.status.value, record.reason.value if record.reason else ""
        name, message = printable_line(record.task_id), printable_line(record.message)
        if not console.is_terminal:
            click.echo("\t".join((status, name, str(record.trial), reason, message)))
            continue
        why = f"  {reason}{': ' if message else ''}{message}" if reason else ""
        line = Text.assemble((f"{status:<7} ", STYLES.get(status, "")), name + record.id.suffix(trials), (why, "dim"))
        console.print(line, no_wrap=True, overflow="ellipsis")


def _show_summary(run: RecordedRun) -> None:
    from securebench.cli.views.summary import print_summary

    summary = run.summary()
    for problem in summary.problems:
        complain(problem)
    print_summary(_console(), summary)


def _show_suite(directory: Path, suite: RecordedSuite, *, as_json: bool) -> None:
    """Show the leaderboard of the runs that were started, and list the runs that were not."""
    from securebench.cli.views.suite import print_leaderboard, standings, standings_json
    from securebench.results.attestation import signature_files
    from securebench.results.suite import missing_runs, read_runs

    found, missing = standings(read_runs(directory)), missing_runs(directory, suite)
    signatures = [file for file in signature_files("suite") if os.path.lexists(directory / file)]
    if as_json:
        about = {"suite": suite.id, "standings": standings_json(found)}
        click.echo(json.dumps({**about, "not_started": missing, "signatures": signatures}, indent=2))
        return
    print_leaderboard(_console(), found)
    for path in missing:
        click.echo(f"Note: {printable_line(path)} was not started")
    for file in signatures:
        click.echo(f"Note: {file} contains a signature; check it with 'securebench verify-run' and --key or --identity")


def _show_task(run: RecordedRun, record: RecordedTask, *, full: bool, as_json: bool) -> int:
    """Show one record. Return the exit code."""
    from securebench.cli.views.excerpt import print_lines
    from securebench.cli.views.task import WIDE, TaskView

    if as_json:
        click.echo(json.dumps(_whole(run, record), indent=2))
        return 0
    console = _console()
    view = TaskView(run, record, full=full, columns=console.width if console.is_terminal else WIDE)
    print_lines(console, view.lines())
    for problem in view.damage:
        complain(problem)
    return EXIT_DAMAGED if view.damage else 0


def _about(run: RecordedRun) -> dict[str, Any]:
    """Return the summary, the agent, the models and the selection of the run, as JSON."""
    selection = run.selection
    return {
        **run.summary().to_json(),
        "agent": run.label,
        "models": list(run.models),
        "selection": selection.describe() if selection else None,
    }


def _brief(record: RecordedTask) -> dict[str, Any]:
    """Return the short form of ``record`` that ``show --json`` prints in a list of records."""
    return {
        "task_id": record.task_id,
        "trial": record.trial,
        "family": record.family,
        "tags": list(record.tags),
        "status": record.status.value,
        "assurance": record.assurance.value if record.assurance else None,
        "reason": record.reason.value if record.reason else None,
        "message": record.message or None,
        "duration_seconds": record.duration_seconds,
    }


def _whole(run: RecordedRun, record: RecordedTask) -> dict[str, Any]:
    """Return a record with its steps and its sealed candidate.

    If the run directory lacks the steps or the candidate, that value is ``None``.
    """
    from securebench.cli.views.task import ABSENT
    from securebench.errors import ConfigError

    whole: dict[str, Any] = {"record": dict(record.raw), "steps": None, "candidate": None}
    try:
        whole["steps"] = list(run.trajectory(record))
    except ConfigError as error:
        if error.code not in ABSENT:
            raise
    try:
        whole["candidate"] = asdict(run.candidate(record))
    except ConfigError as error:
        if error.code not in ABSENT:
            raise
    return whole


def _console() -> Console:
    from rich.console import Console

    return Console(highlight=False)
