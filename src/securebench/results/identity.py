"""Which run a record belongs to: one that belongs to another is noticed before anything is counted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.resources import JsonValue


@dataclass(frozen=True, slots=True, kw_only=True)
class RunIdentity:
    """What all records of a run say of it. ``tasks`` holds the family and the row's provenance of each task."""

    run_id: str
    benchmark_id: str
    provenance: Mapping[str, JsonValue]
    tasks: Mapping[str, tuple[str, JsonValue]]
    images: Mapping[str, str] = field(default_factory=dict)

    def foreign(self, record: Mapping[str, Any]) -> str:
        """Return what in ``record`` is not of this run, in words; nothing if it belongs here."""
        said = record["provenance"]
        for name, own in (("run_id", self.run_id), ("benchmark_id", self.benchmark_id)):
            if record.get(name) != own:
                return f"its {name} is {record.get(name)!r}, not {own!r}"
        task_id = record.get("task_id")
        if not isinstance(task_id, str) or task_id not in self.tasks:
            return f"the pack has no task {task_id!r}"
        family, row = self.tasks[task_id]
        if record.get("task_type") != family:
            return f"its task_type is {record.get('task_type')!r}, and that of the task is {family!r}"
        for name, expected in {**self.provenance, "row": row}.items():
            if said.get(name) != expected:
                return f"it comes from another {name}"
        image = said.get("image")
        reference, found = (image.get("reference"), image.get("id")) if isinstance(image, dict) else (None, None)
        if found and self.images.get(str(reference)) != found:
            return f"it comes from another image {reference!r}"
        return ""
