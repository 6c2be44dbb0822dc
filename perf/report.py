"""Tables of figures: shown to people, kept as JSON, and written into pages of the documentation."""

from __future__ import annotations

import textwrap
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.table import Table as RichTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

ROOT: Final = Path(__file__).resolve().parent.parent


@dataclass(slots=True)
class Table:
    """A table.

    The cells of ``rows`` are texts and numbers. A float is shown with three significant digits, or as a whole number if
    it is 100 or more.
    ``notes`` are shown below the table.
    """

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, *cells: Any) -> None:
        """Add a row."""
        self.rows.append(cells)

    def show(self, console: Console) -> None:
        """Print the table."""
        shown = RichTable(*self.columns, title=self.title)
        for row in self.rows:
            shown.add_row(*map(_shown, row))
        console.print(shown)
        for note in self.notes:
            console.print(note)
        console.print()

    def to_json(self) -> dict[str, Any]:
        """Return the table as a JSON object."""
        return asdict(self)

    def to_markdown(self) -> str:
        """Return the table as Markdown, without its title."""
        lines = (self.columns, ["---"] * len(self.columns), *self.rows)
        table = "\n".join(f"| {' | '.join(map(_shown, line))} |" for line in lines)
        return "\n\n".join(filter(None, (table, "\n".join(map(_item, self.notes)))))


def _item(note: str) -> str:
    """Return ``note`` as an item of a Markdown list."""
    return textwrap.fill(
        note, 120, initial_indent="* ", subsequent_indent="  ", break_on_hyphens=False, break_long_words=False
    )


def update_page(page: Path, name: str, tables: Sequence[Table]) -> None:
    """Replace the tables between the marks ``<!-- name -->`` and ``<!-- end of name -->`` of a Markdown page."""
    text = page.read_text(encoding="utf-8")
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
    before, begun, rest = text.partition(begin)
    _, ended, after = rest.partition(end)
    if not (begun and ended):
        raise SystemExit(f"{page} has no marks <!-- {name} --> and <!-- end of {name} -->")
    found = "\n\n".join(table.to_markdown() for table in tables)
    page.write_text(f"{before}{begin}\n{found}\n\n{end}{after}", encoding="utf-8")


def within(value: float, bound: float, *, at_least: bool = False) -> str:
    """Return a text with ``value``, its bound, and whether it is within the bound."""
    kept = value >= bound if at_least else value <= bound
    return f"{_shown(value)} ({'≥' if at_least else '≤'} {bound:g}: {'yes' if kept else 'no'})"


def with_limit(value: float, limit: float, unit: str = "") -> str:
    """Return a text with ``value`` and whether it is within its upper limit, in words, for use outside of tables."""
    state = "within" if value <= limit else "over"
    return f"{_shown(value)}{unit} ({state} the limit of {limit:g}{unit})"


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.0f}" if value >= 100 else f"{value:.3g}"  # noqa: PLR2004 - three digits
    return str(value)
