"""The results of ``run.py`` about other harnesses, as tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

from report import Table

if TYPE_CHECKING:
    from collections.abc import Iterator

RESULTS: Final = Path(__file__).resolve().parents[2] / ".cache" / "peers" / "results.json"


def tables() -> Iterator[Table]:
    """Yield one table, if there are results. Its notes list the harnesses that were not measured, with the reason."""
    if not RESULTS.exists():
        return
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    table = Table("Other harnesses: one trivial task", ("harness", "version", "sandboxes", "tasks at once", "s a task"))
    for one in found["ran"]:
        table.add(one["name"], one["version"], one["sandboxes"], one["at_once"], one["seconds"])
    table.notes += [f"{one['name']} was not measured: {one['reason']}" for one in found["failed"]]
    table.notes.append(f"Measured on {found['date']}, apart from the rest.")
    yield table
