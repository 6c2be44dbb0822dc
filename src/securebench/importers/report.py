"""The report of an import: for each task, what was kept, changed or lost, or why it was not imported."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from securebench.errors import ConfigError
from securebench.importers.row import skippable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from securebench.errors import Problem


@dataclass(slots=True)
class TaskReport:
    """The report of one task. ``refused`` is the reason why the task was not imported, or empty if it was imported."""

    name: str
    carried: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    refused: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            "task": self.name,
            "imported": not self.refused,
            "refused": self.refused,
            "carried": self.carried,
            "changed": self.changed,
            "lost": self.lost,
        }


class Refusals:
    """The tasks that cannot be imported, and why. They stop an import unless the user chose to ``skip`` them."""

    def __init__(self, *, skip: bool) -> None:
        self.reports: list[TaskReport] = []
        self._skip = skip
        self._problems: list[Problem] = []

    def add(self, name: str, problems: Iterable[Problem]) -> None:
        """Add the task ``name``, which cannot be imported because of ``problems``."""
        found = [*problems]
        self._problems += found
        self.reports.append(TaskReport(name, refused="; ".join(each.message for each in found)))

    def settle(self) -> None:
        """Raise :class:`ConfigError` with the problems of all added tasks, unless the user chose to ``skip`` them."""
        if self._problems and not self._skip:
            raise ConfigError(problems=[*map(skippable, self._problems)])


def report_lines(reports: Sequence[TaskReport]) -> list[str]:
    """Return the lines of the whole report: a paragraph for each task, and the totals."""
    lines = []
    for one in reports:
        lines.append(f"{one.name}: {'NOT imported' if one.refused else 'imported'}")
        lines += [f"    reason:  {one.refused}"] if one.refused else []
        for word, notes in (("carried", one.carried), ("changed", one.changed), ("lost", one.lost)):
            lines += [f"    {word + ':':<8} {note}" for note in notes]
    refused = sum(bool(one.refused) for one in reports)
    return [*lines, f"{len(reports) - refused} imported, {refused} not imported"]
