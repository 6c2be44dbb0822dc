"""Which run a record belongs to: one that belongs to another is noticed before anything is counted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from securebench.resources import JsonValue


@dataclass(frozen=True, slots=True, kw_only=True)
class RunIdentity:
    """What all records of a run say of it.

    ``tasks`` holds the family and the row's provenance of each task; ``verifiers`` what the provenance names as the
    verifier of a family, ``None`` for one that has none; ``driver`` the name and runtime of the sandbox driver.
    """

    run_id: str
    benchmark_id: str
    provenance: Mapping[str, JsonValue]
    tasks: Mapping[str, tuple[str, JsonValue]]
    verifiers: Mapping[str, JsonValue]
    driver: Mapping[str, JsonValue]
    images: Mapping[str, str] = field(default_factory=dict)

    def foreign(self, record: Mapping[str, Any]) -> str:
        """Return what in ``record`` is not of this run, in words; nothing if it belongs here."""
        return next(self._mismatches(record), "")

    def _mismatches(self, record: Mapping[str, Any]) -> Iterator[str]:
        for name, own in (("run_id", self.run_id), ("benchmark_id", self.benchmark_id)):
            if record.get(name) != own:
                yield f"its {name} is {record.get(name)!r}, not {own!r}"
        task_id = record.get("task_id")
        family, row = self.tasks.get(task_id, ("", None)) if isinstance(task_id, str) else ("", None)
        if not family:
            yield f"the pack has no task {task_id!r}"
            return
        if record.get("task_type") != family:
            yield f"its task_type is {record.get('task_type')!r}, and that of the task is {family!r}"
        verifier, status = self.verifiers[family], record.get("verification_status")
        if "failure_reason" not in record and (status == "pending") is not (verifier is None):
            yield f"its status is {status!r}, which no record of its family can have"
        yield from self._other_sources(record["provenance"], {**self.provenance, "row": row, "verifier": verifier})

    def _other_sources(self, found: Mapping[str, Any], expected: Mapping[str, JsonValue]) -> Iterator[str]:
        for name, own in expected.items():
            if found.get(name) != own:
                yield f"it comes from another {name}"
        driver = found.get("driver")
        if not isinstance(driver, dict) or any(driver.get(name) != own for name, own in self.driver.items()):
            yield "it comes from another driver"
        image = found.get("image")
        if not isinstance(image, dict) or not {"reference", "id"} <= image.keys():
            yield "it does not say which image it comes from"
        elif image["id"] and self.images.get(str(image["reference"])) != image["id"]:
            yield f"it comes from another image {image['reference']!r}"
