"""Tables of results on a terminal: names on the left, numbers on the right, cells unbroken if there is room."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from rich.box import SIMPLE
from rich.table import Table
from rich.text import Text

from securebench.printable import printable_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

_UNBOUNDED: Final = 10_000
"""A width in columns that no table exceeds."""


def results_table(
    console: Console, headings: Sequence[str], rows: Sequence[Sequence[str]], styles: Sequence[str] = ()
) -> Table:
    """Return a table with names in its first column.

    If the table would be too wide for the terminal, its columns are closer together.

    ``styles`` has the style of each row.
    """
    wide = _table(headings, rows, styles, padding=1)
    return wide if fits(console, wide) else _table(headings, rows, styles, padding=0)


def fits(console: Console, table: Table) -> bool:
    """Return whether the whole width of ``table`` fits the terminal."""
    return console.measure(table, options=console.options.update(width=_UNBOUNDED)).maximum <= console.width


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]], styles: Sequence[str], padding: int) -> Table:
    table = Table(box=SIMPLE, collapse_padding=True, pad_edge=False, padding=(0, padding))
    for number, heading in enumerate(headings):
        table.add_column(
            printable_line(heading),
            justify="right" if number else "left",
            no_wrap=bool(number),
            overflow="fold",
        )
    for row, style in zip_longest(rows, styles, fillvalue=""):
        table.add_row(*(Text(printable_line(cell)) for cell in row), style=style)
    return table
