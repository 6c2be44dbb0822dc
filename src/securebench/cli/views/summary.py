"""The summary at the end of a run: a table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click
from rich.box import SIMPLE
from rich.console import Group
from rich.table import Table
from rich.text import Text

from securebench.cli.views.plain import cost_text
from securebench.plurals import counted
from securebench.printable import printable, printable_line
from securebench.results.records.record import WEAK
from securebench.results.summary import RunEnd

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, RenderableType

    from securebench.results.records.record import RecordEntry
    from securebench.results.records.usage import Usage
    from securebench.results.statistics import Estimate
    from securebench.results.summary import Counts, RunEstimates, TesterRunSummary

_OUT_OF_BUDGET = "The run reached its budget. To run the rest, resume it with a larger --budget-usd"
_COLUMNS = ("tasks", "trials", "passed", "failed", "errors", "pending", "not run", "pass rate")


def print_summary(console: Console, summary: TesterRunSummary) -> None:
    """Print a table on a terminal, plain lines elsewhere."""
    if console.is_terminal:
        console.print(summary_table(summary))
    else:
        click.echo("\n".join(summary_lines(summary)))


def summary_table(summary: TesterRunSummary) -> RenderableType:
    """Return the counts by family, the tasks that did not pass and why, and the path of the results."""
    table = Table(title=_title(summary), title_justify="left", box=SIMPLE, padding=(0, 0), pad_edge=False)
    table.add_column("family", no_wrap=True)
    for name in _columns(summary):
        table.add_column(name, justify="right", no_wrap=True)
    for family, counts in summary.families.items():
        table.add_row(Text(printable_line(family)), *_cells(counts))
    if len(summary.families) > 1:
        table.add_section()
        table.add_row("all", *_cells(summary.total), style="bold")
    weak = [Text(f"{printable_line(family)}: {text}", style="yellow") for family, text in _weak_families(summary)]
    return Group("", table, *weak, *_failures(summary), *(Text(line, overflow="fold") for line in _footer(summary)))


def summary_lines(summary: TesterRunSummary) -> list[str]:
    """Return the lines of the summary for a file or a pipe. They are neither cut nor padded.

    There is a line for each family, and one or two for each of the summary's ``failures``.
    """
    lines = [_title(summary)]
    totals = {"all": summary.total} if len(summary.families) > 1 else {}
    for family, counts in {**summary.families, **totals}.items():
        *numbers, rate = _cells(counts)
        parts = ", ".join(_counted(number, name) for number, name in zip(numbers, _columns(summary), strict=False))
        weak = f" ({found})" if (found := weak_passes(counts)) else ""
        lines.append(f"{printable_line(family)}: {parts}, pass rate {rate}{weak}")
    if summary.failures:
        lines.append("Did not pass:")
        for entry in summary.failures:
            lines.append(f"  {entry.status} {_line(_name(entry, summary))} {_reason(entry)}")
            lines += [f"    agent's stderr: {_line(entry.agent_stderr)}"] if entry.agent_stderr else []
        lines += [f"  {more}"] if (more := _more(summary)) else []
    return [*lines, *_footer(summary)]


def weak_passes(counts: Counts) -> str:
    """Return the number of passes, and how many are weak (see :data:`WEAK`); empty if there are no weak passes."""
    found = [f"{number} {WEAK[name]}" for name, number in counts.passed_by_assurance.items() if name in WEAK]
    return f"{counts.passed} passed, {', '.join(found)}" if found else ""


def _weak_families(summary: TesterRunSummary) -> Iterator[tuple[str, str]]:
    for family, counts in summary.families.items():
        if text := weak_passes(counts):
            yield family, text


def _title(summary: TesterRunSummary) -> str:
    return printable(f"{summary.benchmark_id}, run {summary.run_id}, agent {summary.agent}")


def _columns(summary: TesterRunSummary) -> list[str]:
    return [name for name in _COLUMNS if name != "trials" or summary.total.trials > 1]


def _cells(counts: Counts) -> list[str]:
    rate = "none" if counts.pass_rate is None else f"{counts.pass_rate:.1%} of {counts.scored}"
    sizes = (counts.tasks,) if counts.trials == 1 else (counts.tasks, counts.planned)
    numbers = (*sizes, counts.passed, counts.failed, counts.errors, counts.pending, counts.not_run)
    return [*map(str, numbers), rate]


def _failures(summary: TesterRunSummary) -> list[RenderableType]:
    """Return for each failure the whole task id, and below it the reason and the agent's stderr, each on one line."""
    if not summary.failures:
        return []
    lines = [Text("Did not pass:", style="bold")]
    for entry in summary.failures:
        lines.append(Text(f"  {entry.status:<6}  {_line(_name(entry, summary))}", overflow="fold"))
        below = [_reason(entry)]
        below += [f"agent's stderr: {_line(entry.agent_stderr)}"] if entry.agent_stderr else []
        lines += [Text(f"          {line}", style="dim", overflow="ellipsis", no_wrap=True) for line in below]
    return [*lines, *([Text(f"  {more}", style="dim")] if (more := _more(summary)) else [])]


def _name(entry: RecordEntry, summary: TesterRunSummary) -> str:
    return entry.task_id + entry.id.suffix(summary.total.trials)


def _reason(entry: RecordEntry) -> str:
    """Return the failure reason, and its message if there is one."""
    return f"{entry.reason}: {_line(entry.message)}" if entry.message else entry.reason


def _counted(number: str, name: str) -> str:
    """Return a number with the name of its column, in the singular for 1."""
    return f"1 {name.rstrip('s')}" if number == "1" and name in {"tasks", "errors"} else f"{number} {name}"


def _more(summary: TesterRunSummary) -> str:
    more = summary.failed + summary.errors - len(summary.failures)
    return f"and {more} more: {_show(summary)} --failed --errors" if more else ""


def _show(summary: TesterRunSummary) -> str:
    """Return the beginning of a command that shows more of the run."""
    return printable(f"securebench show {shlex.quote(str(summary.output_dir))}")


def _footer(summary: TesterRunSummary) -> list[str]:
    return [
        *([f"Selection: {summary.part.describe()}"] if summary.part else []),
        *(_estimates(summary.estimates) if summary.estimates else []),
        f"Verification: {summary.verification_status}",
        *usage_lines(summary),
        *([_OUT_OF_BUDGET] if summary.ending is RunEnd.OUT_OF_BUDGET else []),
        *([printable_line(f"Judge model: {summary.judge}")] if summary.judge else []),
        f"Results: {printable(str(summary.output_dir / 'candidates.jsonl'))}",
        *([f"Details: {_show(summary)} TASK"] if summary.failures else []),
    ]


def _estimates(found: RunEstimates) -> Iterator[str]:
    """Yield the pass rate with its interval, and for several trials how consistent the agent is."""
    yield f"{'Pass rate' if found.k == 1 else 'pass@1'}: {_percent(found.pass_at_1)}"
    if found.pass_at_k:
        yield f"pass@{found.k}: {_percent(found.pass_at_k)}"
    if found.pass_hat_k:
        yield f"pass^{found.k}: {_percent(found.pass_hat_k)}"
    if found.flaky_tasks:
        more = found.flaky_tasks - len(found.flaky)
        names = ", ".join(map(_line, found.flaky)) + (f", and {more} more" if more else "")
        yield f"Flaky tasks: {found.flaky_tasks} ({names})"


def _percent(estimate: Estimate) -> str:
    low, high = estimate.interval.low, estimate.interval.high
    return f"{estimate.value:.1%} of {counted(estimate.tasks, 'task')}, 95% interval {low:.1%} to {high:.1%}"


def usage_lines(summary: TesterRunSummary) -> list[str]:
    """Return a line on the usage of the agents, if it is known.

    If the judge model's cost is known, add a line with this cost. That line also has the total cost, if it is known.
    """
    judged = summary.judge.usage.cost_usd if summary.judge else None
    if judged is None:
        return [usage_line(summary.usage, summary.budget_usd)] if summary.usage else []
    if summary.cost_usd is None:
        cost = f"{cost_text(judged)} for the judge model; the cost of the agent is not known"
    else:
        cost = f"{cost_text(summary.cost_usd, summary.budget_usd)}, {cost_text(judged)} of it for the judge model"
    return [*([usage_line(summary.usage)] if summary.usage else []), f"Cost: about {cost}"]


def usage_line(usage: Usage, budget_usd: float | None = None) -> str:
    """Return tokens, turns and cost in words."""
    cost = "" if usage.cost_usd is None else f", about {cost_text(usage.cost_usd, budget_usd)}"
    return f"Usage: {usage.input_tokens:,} tokens in, {usage.output_tokens:,} out, {counted(usage.turns, 'turn')}{cost}"


def _line(text: str) -> str:
    """Return ``text`` on one line, without terminal control sequences."""
    return " ".join(printable(text).split())
