"""The selected part of a pack. Every output of a run states it, unless the run covers the whole benchmark."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from securebench.plurals import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.resources import JsonValue


@dataclass(frozen=True, slots=True)
class PartOfPack:
    """The part of a pack that a run executes.

    ``planned`` is the number of tasks in this part. ``tasks`` is the number of all tasks in the pack. ``criteria`` are
    the settings that select the part, such as ``{"limit": 10}``.
    """

    planned: int
    tasks: int
    criteria: Mapping[str, JsonValue] = field(default_factory=dict)

    def to_json(self) -> dict[str, JsonValue]:
        """Return the part as JSON, for ``--json``."""
        return {"planned": self.planned, "tasks": self.tasks, "selection": dict(self.criteria)}

    def describe(self, pack: str = "") -> str:
        """Return the part in words, with the name of the ``pack`` if it is given."""
        tasks = counted(self.tasks, "task")
        of_pack = f"{tasks} of {pack}" if pack else tasks
        return of_pack if self.planned == self.tasks else f"{self.planned} of {of_pack}, not the whole benchmark"
