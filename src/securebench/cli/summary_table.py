"""The table at the end of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.box import SIMPLE
from rich.console import Group
from rich.table import Table
from rich.text import Text

from securebench.results.trace import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from securebench.results.record import Entry
    from securebench.results.summary import Counts, TesterRunSummary
    from securebench.results.usage import Usage

_COLUMNS = ("tasks", "passed", "failed", "errors", "pending", "not run", "pass rate")


def summary_table(summary: TesterRunSummary) -> RenderableType:
    """Return counts by family, then the tasks that did not pass and why, then where everything is."""
    title = printable(f"{summary.benchmark_id}, run {summary.run_id}")
    table = Table(title=title, title_justify="left", box=SIMPLE, padding=(0, 0), pad_edge=False)
    table.add_column("family", no_wrap=True)
    for name in _COLUMNS:
        table.add_column(name, justify="right", no_wrap=True)
    for family, counts in summary.families.items():
        table.add_row(family, *_cells(counts))
    if len(summary.families) > 1:
        table.add_section()
        table.add_row("all", *_cells(summary.total), style="bold")
    return Group("", table, *_failures(summary), *_footer(summary))


def _cells(counts: Counts) -> list[str]:
    rate = "none" if counts.pass_rate is None else f"{counts.pass_rate:.1%} of {counts.scored}"
    numbers = (counts.tasks, counts.passed, counts.failed, counts.errors, counts.pending, counts.not_run)
    return [*map(str, numbers), rate]


def _failures(summary: TesterRunSummary) -> list[RenderableType]:
    if not summary.failures:
        return []
    table = Table.grid(padding=(0, 2))
    for entry in summary.failures:
        table.add_row(f"  {entry.status}", _plain(entry.task_id), entry.reason, _message(entry))
    more = summary.failed + summary.errors - len(summary.failures)
    rest = [Text(f"  and {more} more; see the records", style="dim")] if more else []
    return [Text("Did not pass:", style="bold"), table, *rest]


def _message(entry: Entry) -> Text:
    text = _plain(entry.message)
    text.stylize("dim")
    return text


def _footer(summary: TesterRunSummary) -> list[RenderableType]:
    return [
        Text(f"Verification: {summary.verification_status}"),
        *([Text(_usage(summary.usage))] if summary.usage else []),
        Text(f"Results: {printable(str(summary.output_dir / 'candidates.jsonl'))}", overflow="fold"),
    ]


def _usage(usage: Usage) -> str:
    cost = "" if usage.cost_usd is None else f", about ${usage.cost_usd:,.2f}"
    turns = "1 turn" if usage.turns == 1 else f"{usage.turns:,} turns"
    return f"Usage: {usage.input_tokens:,} tokens in, {usage.output_tokens:,} out, {turns}{cost}"


def _plain(text: str) -> Text:
    """Return ``text`` on one line, nothing in it obeyed: neither by a terminal nor as markup."""
    return Text(" ".join(printable(text).split()))
