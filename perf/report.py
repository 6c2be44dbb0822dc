"""Tables of figures: shown to people, and kept as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from rich.table import Table as RichTable

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(slots=True)
class Table:
    """A table: ``rows`` hold numbers or text; numbers are shown with three figures. ``notes`` stand below it."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, *cells: Any) -> None:
        """Add a row."""
        self.rows.append(cells)

    def show(self, console: Console) -> None:
        """Print it."""
        shown = RichTable(*self.columns, title=self.title)
        for row in self.rows:
            shown.add_row(*map(_shown, row))
        console.print(shown)
        for note in self.notes:
            console.print(note)
        console.print()

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)


def within(value: float, bound: float, *, at_least: bool = False) -> str:
    """Return ``value`` beside its bound, and whether it is kept."""
    kept = value >= bound if at_least else value <= bound
    return f"{_shown(value)} ({'≥' if at_least else '≤'} {bound:g}: {'yes' if kept else 'no'})"


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.0f}" if value >= 100 else f"{value:.3g}"  # noqa: PLR2004 - three figures
    return str(value)
