"""``securebench status``: show the progress of a run."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from securebench.cli.run_command import EXIT_ERRORS
from securebench.plurals import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console
    from rich.text import Text

    from securebench.results.snapshot import RunSnapshot
    from securebench.results.suite import RecordedSuite

_EXAMPLES: Final = """\b
Examples:
  securebench status results
  securebench status results --watch
"""

_SHOWN_TASKS: Final = 16
_STYLES: Final = {"running": "cyan", "finished": "green", "interrupted": "yellow", "out_of_budget": "yellow"}


@click.command(name="status", epilog=_EXAMPLES)
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--watch", is_flag=True, help="Keep the display up to date until the run ends.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; with --watch, one line for each change.")
@click.pass_context
def command(ctx: click.Context, /, directory: Path, *, watch: bool, as_json: bool) -> None:
    """Show the progress of a run: tasks done, running and left, rate, time left, tokens and cost.

    DIR is the output directory of a run, which may be in progress in another terminal. Its files are only read. For
    the output directory of a suite, one line for each of its runs is shown.

    Exit codes: 0 shown; 1 DIR has no run or suite, or is damaged; 2 wrong usage; 3 only with --watch: the run has
    ended, and some tasks did not run or ended in an infrastructure error.
    """
    from rich.console import Console

    from securebench.results.read import read_run
    from securebench.results.snapshot import run_snapshot, watch_run
    from securebench.results.suite import read_suite

    if suite := read_suite(directory):
        if watch:
            raise click.UsageError(f"{directory} is a suite: --watch needs the directory of one of its runs")
        _print_suite(Console(highlight=False), directory, suite, as_json=as_json)
        return
    if not watch:
        snapshot = run_snapshot(read_run(directory))
        if as_json:
            click.echo(json.dumps(snapshot.to_json(), indent=2))
        else:
            _print(Console(highlight=False), snapshot)
        return
    last = _watch(Console(highlight=False), watch_run(directory), as_json=as_json)
    ctx.exit(0 if last.has_verdicts else EXIT_ERRORS)


def _print_suite(console: Console, directory: Path, suite: RecordedSuite, *, as_json: bool) -> None:
    """Print one line for each run of a suite, or all of them as JSON."""
    from rich.text import Text

    from securebench.printable import printable_line
    from securebench.results.snapshot import run_snapshot
    from securebench.results.suite import missing_runs, read_runs

    snapshots, missing = list(map(run_snapshot, read_runs(directory))), missing_runs(directory, suite)
    if as_json:
        runs = [snapshot.to_json() for snapshot in snapshots]
        click.echo(json.dumps({"suite": suite.id, "runs": runs, "not_started": missing}, indent=2))
        return
    for snapshot in snapshots:
        name = printable_line(f"{snapshot.summary.benchmark_id}, {snapshot.run.label}")
        state = snapshot.state.value
        selection = f", {snapshot.run.selection.describe()}" if snapshot.run.selection else ""
        line = Text(f"{name}: ").append(state, style=_STYLES.get(state, "")).append(f", {_brief(snapshot)}{selection}")
        console.print(line, soft_wrap=True)
    for path in missing:
        console.print(Text(f"{printable_line(path)}: not started", style="dim"), soft_wrap=True)


def _watch(console: Console, snapshots: Iterator[RunSnapshot], *, as_json: bool) -> RunSnapshot:
    """Show snapshots until the run ends: live on a terminal without ``--json``, otherwise as lines. Return the last."""
    if as_json or not console.is_terminal:
        return _watch_lines(snapshots, as_json=as_json)
    from rich.console import Group
    from rich.live import Live

    with Live(console=console, auto_refresh=False, transient=True) as live:
        for snapshot in snapshots:
            live.update(Group(*_lines(snapshot)), refresh=True)
    _print(console, snapshot)
    return snapshot


def _watch_lines(snapshots: Iterator[RunSnapshot], *, as_json: bool) -> RunSnapshot:
    before = None
    for snapshot in snapshots:
        if (now := (snapshot.state, snapshot.done, snapshot.running)) != before:
            click.echo(json.dumps(snapshot.to_json()) if as_json else _brief(snapshot))
        before = now
    return snapshot


def _print(console: Console, snapshot: RunSnapshot) -> None:
    for line in _lines(snapshot):
        console.print(line, soft_wrap=True)


def _lines(snapshot: RunSnapshot) -> Iterator[Text]:
    """Yield the lines that describe a snapshot."""
    from rich.text import Text

    from securebench.cli.views.live import clock, shortened
    from securebench.cli.views.summary import usage_lines
    from securebench.printable import printable_line

    run, counts = snapshot.run, snapshot.counts
    title = f"{snapshot.summary.benchmark_id}, run {snapshot.summary.run_id}: "
    state = snapshot.state.value
    yield Text(printable_line(title), style="bold").append(state, style=_STYLES.get(state, ""))
    models = f" ({', '.join(run.models)})" if run.models else ""
    yield Text(f"Agent: {printable_line(run.label + models)}")
    if run.selection:
        yield Text(f"Selection: {run.selection.describe()}")
    yield Text(f"Done: {_brief(snapshot)}")
    now = datetime.now(UTC)
    if snapshot.running:
        yield Text(f"Running: {len(snapshot.running)}")
    for task in snapshot.running[:_SHOWN_TASKS]:
        name = shortened(task.task_id) + (f" (trial {task.trial})" if run.trials > 1 else "")
        yield Text(f"  {task.phase:<8} {clock(max(0, (now - task.since).total_seconds())):>7}  {name}")
    if (more := len(snapshot.running) - _SHOWN_TASKS) > 0:
        yield Text(f"  and {more} more", style="dim")
    if state == "running":
        rate = f", {snapshot.rate:.1f} per minute" if snapshot.rate is not None else ""
        about = f", about {clock(snapshot.seconds_left)} left" if snapshot.seconds_left is not None else ""
        yield Text(f"Left: {counts.not_run:,}{rate}{about}")
    elif left := counts.not_run + counts.errors:
        yield Text(f"Without a verdict: {left:,}. To run them, repeat the 'securebench run' command with --resume")
    if snapshot.started_at and snapshot.finished_at:
        ended = "finished" if state == "finished" else "last trial finished"
        yield Text(f"Started {_moment(snapshot.started_at)}, {ended} {_moment(snapshot.finished_at)}", style="dim")
    yield from map(Text, usage_lines(snapshot.summary))
    yield from (Text(f"Problem: {printable_line(problem)}", style="red") for problem in snapshot.summary.problems)


def _brief(snapshot: RunSnapshot) -> str:
    """Return the counts in one line."""
    counts = snapshot.counts
    share = f" ({snapshot.done / counts.planned:.0%})" if counts.planned else ""
    outcomes = f"{counts.passed:,} passed, {counts.failed:,} failed, {counted(counts.errors, 'error')}"
    pending = f", {counts.pending:,} pending" if counts.pending else ""
    return f"{snapshot.done:,} of {counts.planned:,}{share}: {outcomes}{pending}"


def _moment(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"
