"""Show the result of judging a run again: tables on a terminal, plain lines elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click
from rich.box import SIMPLE
from rich.table import Table
from rich.text import Text

from securebench.plurals import counted
from securebench.printable import printable_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from securebench.results.reverification import Reverification

_SHOWN: Final = 20
"""Maximum number of trials in each table. ``--json`` lists all."""
_LONGEST: Final = 200
"""Maximum number of characters in a cell."""

_CHANGED: Final = ("task", "was", "is now", "reason")
_UNJUDGED: Final = ("task", "not judged again because")


def print_result(console: Console, result: Reverification) -> None:
    """Print the trials whose verdict changed, the trials not judged again, other differences, and a summary line."""
    verdicts = result.verdicts
    changed = [(str(trial), str(was), str(now), message) for trial, was, now, message in verdicts.changed]
    unjudged = [(str(trial), why) for trial, why in verdicts.unjudged]
    for headings, rows in ((_CHANGED, changed), (_UNJUDGED, unjudged)):
        if rows and console.is_terminal:
            console.print(_table(headings, rows))
        elif rows:
            click.echo("\t".join(headings))
        if rows and not console.is_terminal:
            for row in rows[:_SHOWN]:
                click.echo("\t".join(map(_cell, row)))
        if len(rows) > _SHOWN:
            click.echo(f"and {len(rows) - _SHOWN} more (--json lists all)")
    for note in (*map(str, result.differences), *result.notes):
        click.echo(f"Note: {printable_line(note)}")
    click.echo(summary_line(result))
    click.echo(f"Results: {printable_line(str(result.summary.output_dir))}")


def summary_line(result: Reverification) -> str:
    """Return the result in one line."""
    verdicts = result.verdicts
    judged = verdicts.same + len(verdicts.changed)
    same = f"{verdicts.same} of {counted(judged, 'verdict')} confirmed" if judged else "no candidate was judged again"
    parts = [same]
    if verdicts.changed:
        parts.append(f"{len(verdicts.changed)} changed")
    if verdicts.unjudged:
        parts.append(f"{counted(len(verdicts.unjudged), 'trial')} not judged again")
    return ", ".join(parts)


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(*headings, box=SIMPLE, pad_edge=False)
    for row in rows[:_SHOWN]:
        table.add_row(*(Text(_cell(cell), overflow="fold") for cell in row))
    return table


def _cell(text: str) -> str:
    return printable_line(text.splitlines()[0] if text else "")[:_LONGEST]
