"""Show images and recipes."""

from __future__ import annotations

import re
import sys
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from securebench.engine.client import Engine
    from securebench.images.store.image_store import ImageStore

_SHORT_ID: Final = 19
_UNITS: Final = "kMGTP"
_KILO: Final = 1000
_TWO_DIGITS: Final = 10
_SIZE: Final = re.compile(rf"(\d+(?:\.\d+)?) ?([k{_UNITS}]?)(i?)B?", re.IGNORECASE)
_AGES: Final = ((86400, "d"), (3600, "h"), (60, "min"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """An image, or a recipe whose image is not built. ``place`` is ``store`` or ``engine``.

    Without an image, ``id`` and ``place`` are empty.
    """

    name: str = ""
    reference: str
    summary: str = ""
    id: str = ""
    size_bytes: int = 0
    place: str = ""
    source: str = ""
    used_at: float = 0.0
    unpacked: bool = False
    in_use: bool = False

    def as_dict(self) -> dict[str, object]:
        """Return the row as JSON."""
        used_at = datetime.fromtimestamp(self.used_at, UTC).isoformat(timespec="seconds") if self.used_at else None
        return {
            "name": self.name or None,
            "reference": self.reference or None,
            "summary": self.summary or None,
            "built": bool(self.id),
            "id": self.id or None,
            "size_bytes": self.size_bytes if self.id else None,
            "place": self.place or None,
            "source": self.source or None,
            "used_at": used_at,
            "unpacked": self.unpacked,
            "in_use": self.in_use,
        }

    def as_fields(self) -> tuple[str, ...]:
        """Return the columns of the table: reference, id, size, source, last use and state."""
        if not self.id:
            return self.reference, "-", "-", "-", "-", f"not built: securebench images build {self.name}"
        state = "in use" if self.in_use else "unpacked" if self.unpacked else "packed"
        used = _ago(time.time() - self.used_at) if self.used_at else "-"
        place = "on the engine" if self.place == "engine" else state
        return self.reference or "-", self.id[:_SHORT_ID], human_size(self.size_bytes), self.source, used, place


HEADINGS: Final = ("reference", "id", "size", "source", "used", "state")


def images_and_recipes(store: ImageStore, engine: Engine | None) -> list[Row]:
    """Return the images of the store, then the recipes whose images are only on the engine or not built."""
    from securebench.images.build import engine_build
    from securebench.images.build.recipes import all_recipes

    recipes = {recipe.reference: recipe for recipe in all_recipes()}
    rows = [
        Row(
            name=recipes[entry.reference].name if entry.reference in recipes else "",
            reference=entry.reference,
            summary=recipes[entry.reference].summary if entry.reference in recipes else "",
            id=entry.id,
            size_bytes=entry.layer_bytes + entry.tree_bytes,
            place="store",
            source=entry.source.value,
            used_at=entry.used_at,
            unpacked=entry.unpacked,
            in_use=entry.in_use,
        )
        for entry in store.entries()
    ]
    for reference in recipes.keys() - {row.reference for row in rows}:
        found = engine_build.find(engine, reference) if engine else None
        row = Row(name=recipes[reference].name, reference=reference, summary=recipes[reference].summary)
        rows.append(replace(row, id=found[0], size_bytes=found[1], place="engine", source="engine") if found else row)
    return rows


def print_images(rows: Sequence[Row]) -> None:
    """Print a table on a terminal, tab-separated lines elsewhere."""
    if not sys.stdout.isatty():
        for row in rows:
            click.echo("\t".join(row.as_fields()))
        return
    from rich.console import Console

    Console().print(images_table(rows))


def images_table(rows: Sequence[Row]) -> Table:
    """Return the images as a table. If it is too wide, references and states are wrapped, not cut."""
    from rich.table import Table

    table = Table()
    for name in HEADINGS:
        table.add_column(name, overflow="fold", no_wrap=name not in {"reference", "state"})
    for row in rows:
        table.add_row(*row.as_fields())
    return table


def human_size(size: float) -> str:
    """Return ``size``, a number of bytes, with a decimal unit, such as ``209 MB``."""
    unit = ""
    for unit_above in _UNITS:
        if size < _KILO:
            break
        size, unit = size / _KILO, unit_above
    digits = 1 if unit and size < _TWO_DIGITS else 0
    return f"{size:.{digits}f} {unit}B"


def parse_size(text: str) -> int:
    """Return the number of bytes of a size such as ``20G``, ``500 MB`` or ``1.5GiB``. Raises ``click.BadParameter``."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise click.BadParameter(f"{text!r} is not a size such as 20G or 500M", param_hint="--budget")
    number, unit, binary = found.groups()
    power = _UNITS.lower().find(unit.lower()) + 1 if unit else 0
    return int(float(number) * (1024 if binary else _KILO) ** power)


def _ago(seconds: float) -> str:
    return next((f"{seconds // size:.0f} {unit} ago" for size, unit in _AGES if seconds >= size), "just now")
