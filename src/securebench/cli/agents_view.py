"""Show installed agent programs."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import click

from securebench.cli.images_view import human_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from securebench.agents.model import Installed

_DATE: Final = 10
"""How many characters of a timestamp are its date."""
HEADINGS: Final = ("name", "version", "platform", "size", "installed", "source", "state")


def as_dict(entry: Installed) -> dict[str, object]:
    """Return an entry as JSON."""
    return {
        "name": entry.program.name,
        "version": entry.program.version,
        "platform": entry.program.platform,
        "integrity": entry.program.integrity or None,
        "directory": str(entry.program.directory),
        "size_bytes": entry.size_bytes,
        "installed_at": _time(entry),
        "source": entry.source or None,
        "pinned": entry.pinned,
        "intact": entry.intact,
    }


def as_fields(entry: Installed) -> tuple[str, ...]:
    """Return an entry as the columns of the table."""
    state = "pinned" if entry.pinned else "-"
    program = entry.program
    return (
        *(program.name, program.version, program.platform, human_size(entry.size_bytes)),
        *((_time(entry) or "-")[:_DATE], entry.source or "-", state if entry.intact else "damaged: install it again"),
    )


def print_programs(entries: Sequence[Installed]) -> None:
    """Print a table on a terminal, tab-separated lines elsewhere."""
    if not sys.stdout.isatty():
        for entry in entries:
            click.echo("\t".join(as_fields(entry)))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(*HEADINGS)
    for entry in entries:
        table.add_row(*as_fields(entry))
    Console().print(table)


def _time(entry: Installed) -> str | None:
    if not entry.installed_at:
        return None
    return datetime.fromtimestamp(entry.installed_at, UTC).isoformat(timespec="seconds")
