"""Show comparisons: tables on a terminal, plain lines elsewhere, or Markdown or CSV on request."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Final

from rich.console import Group
from rich.text import Text

from securebench.cli.views.live import clock
from securebench.cli.views.tables import fits, results_table
from securebench.plurals import counted
from securebench.printable import csv_cell, markdown_text, printable_line
from securebench.results.comparison import names_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import Console, RenderableType

    from securebench.results.comparison import Comparison, PairTally
    from securebench.results.statistics import Estimate

_SHOWN_TASKS: Final = 10
_SIGNIFICANT: Final = 0.05

_HEADINGS: Final = ("agent", "pass rate %", "difference", "p", "won:lost", "time", "cost")


def tables(console: Console, groups: Mapping[str, Sequence[Comparison]]) -> RenderableType:
    """Return a table for each benchmark, and below it the details of each comparison (see :func:`_details`).

    If a table does not fit the terminal, each run is shown on a line instead.
    """
    parts: list[RenderableType] = []
    for name, pairs in groups.items():
        styles = ["", *map(_style, pairs)]
        table = results_table(console, _HEADINGS, list(_rows(pairs)), styles)
        lines = [Text(line, style=style) for line, style in zip(_row_lines(pairs), styles, strict=True)]
        rows: list[RenderableType] = [table] if fits(console, table) else [Text(), *lines, Text()]
        parts += [Text(_title(name, pairs), style="bold"), *rows, *map(Text, _details(pairs)), Text()]
    return Group(*parts)


def plain(groups: Mapping[str, Sequence[Comparison]]) -> str:
    """Return the comparisons as plain text for a file or a pipe: a line for each run, and the details below."""
    lines: list[str] = []
    for name, pairs in groups.items():
        lines += [_title(name, pairs), *(f"  {line}" for line in _row_lines(pairs))]
        lines += [f"  {line}" for line in _details(pairs)]
    return "".join(f"{line}\n" for line in lines)


def markdown(groups: Mapping[str, Sequence[Comparison]]) -> str:
    """Return a Markdown table for each benchmark, and below it the details of each comparison as a list."""
    lines: list[str] = []
    for name, pairs in groups.items():
        lines += [f"### {markdown_text(_title(name, pairs))}", ""]
        lines += ["| " + " | ".join(_HEADINGS) + " |", "|---" + "|--:" * (len(_HEADINGS) - 1) + "|"]
        lines += ["| " + " | ".join(map(markdown_text, row)) + " |" for row in _rows(pairs)]
        lines += ["", *(f"* {markdown_text(line)}" for line in _details(pairs)), ""]
    return "\n".join(lines)


def csv_text(groups: Mapping[str, Sequence[Comparison]]) -> str:
    """Return the comparisons as CSV, with a line for each comparison. Only times are rounded."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(
        [
            *("benchmark", "a", "b", "tasks", "rate_a", "rate_a_low", "rate_a_high", "rate_b", "rate_b_low"),
            *(
                "rate_b_high",
                "difference",
                "difference_low",
                "difference_high",
                "p_value",
                "method",
                "only_a",
                "only_b",
            ),
            *("agreement", "seconds_a", "seconds_b", "cost_usd_a", "cost_usd_b"),
        ]
    )
    for name, pairs in groups.items():
        for pair in pairs:
            writer.writerow(
                [
                    *map(csv_cell, (name, str(pair.a.run.directory), str(pair.b.run.directory))),
                    pair.tasks,
                    *(pair.rate_a.value, pair.rate_a.interval.low, pair.rate_a.interval.high),
                    *(pair.rate_b.value, pair.rate_b.interval.low, pair.rate_b.interval.high),
                    *(pair.difference, pair.interval.low, pair.interval.high, pair.p_value, pair.method),
                    *(len(pair.only_a), len(pair.only_b), pair.agreement),
                    *(round(pair.a.seconds, 3), round(pair.b.seconds, 3)),
                    *(pair.a.usage.cost_usd, pair.b.usage.cost_usd),
                ]
            )
    return file.getvalue()


def _title(name: str, pairs: Sequence[Comparison]) -> str:
    sizes = sorted({pair.tasks for pair in pairs})
    tasks = f"{sizes[0]} to {sizes[-1]} tasks" if len(sizes) > 1 else counted(sizes[0], "task")
    return printable_line(f"{name}: {tasks} with a verdict in both runs, 95 % intervals")


def _rows(pairs: Sequence[Comparison]) -> Iterator[list[str]]:
    """Yield the cells of the baseline, and of each run compared with it."""
    names = names_of(pairs)
    first = pairs[0]
    yield [names[id(first.a)], _rate(first.rate_a), "", "", "", *_spent(first.a)]
    for pair in pairs:
        yield [
            names[id(pair.b)],
            _rate(pair.rate_b),
            f"{100 * pair.difference:+.1f} [{100 * pair.interval.low:+.1f}, {100 * pair.interval.high:+.1f}]",
            _p_value(pair.p_value),
            f"{len(pair.only_b)}:{len(pair.only_a)}",
            *_spent(pair.b),
        ]


def _row_lines(pairs: Sequence[Comparison]) -> Iterator[str]:
    """Yield the rows of :func:`_rows` as lines, with the name of each value."""
    for row in _rows(pairs):
        fields = [f"{heading} {cell}" for heading, cell in zip(_HEADINGS[1:], row[1:], strict=True) if cell]
        yield f"{row[0]}: {', '.join(fields)}"


def _details(pairs: Sequence[Comparison]) -> Iterator[str]:
    """Yield the tasks that only one of two agents passed, how often the agents agree, and notes about the runs.

    If a run has several verdicts on a task, yield the tasks that one agent passed more often than the other agent, not
    the tasks that only one agent passed.
    """
    names = names_of(pairs)
    for pair in pairs:
        for this, other, ids in ((pair.b, pair.a, pair.only_b), (pair.a, pair.b, pair.only_a)):
            if ids:
                more = f" and {len(ids) - _SHOWN_TASKS} more (--json lists all)" if len(ids) > _SHOWN_TASKS else ""
                shown = ", ".join(map(printable_line, ids[:_SHOWN_TASKS]))
                winner, loser = names[id(this)], names[id(other)]
                if pair.method == "mcnemar":
                    yield f"Passed only by {winner}, not by {loser}: {shown}{more}"
                else:
                    yield f"Passed more often by {winner} than by {loser}: {shown}{more}"
        yield f"{names[id(pair.b)]} agrees with {names[id(pair.a)]} on {pair.agreement:.0%} of the tasks"
    for note in dict.fromkeys(note for pair in pairs for note in pair.notes):
        yield f"Note: {printable_line(note)}"


def _rate(rate: Estimate) -> str:
    return f"{100 * rate.value:.1f} [{100 * rate.interval.low:.1f}, {100 * rate.interval.high:.1f}]"


def _p_value(value: float) -> str:
    return f"{value:.3f}" if value >= 0.001 else "<0.001"  # noqa: PLR2004 - the last shown digit


def _spent(side: PairTally) -> tuple[str, str]:
    cost = side.usage.cost_usd
    return clock(side.seconds), "" if cost is None else f"${cost:,.2f}"


def _style(pair: Comparison) -> str:
    """Return the color of a difference, or an empty string if it is not significant."""
    if pair.p_value >= _SIGNIFICANT:
        return ""
    return "green" if pair.difference > 0 else "red"
