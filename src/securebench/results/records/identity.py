"""Check that a record belongs to its run, before it is counted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from securebench.resources import JsonValue


@dataclass(frozen=True, slots=True, kw_only=True)
class RunIdentity:
    """The values that all records of a run must have, given by the pack and this machine.

    ``tasks`` maps task ids to the family and the row's provenance. ``verifiers`` maps families to the provenance of
    their verifier, or ``None`` if there is none. ``driver`` has the name and runtime of the sandbox driver. ``trials``
    is the number of trials of each task. ``images`` maps references of images to their ids.
    """

    provenance: Mapping[str, JsonValue]
    tasks: Mapping[str, tuple[str, JsonValue]]
    verifiers: Mapping[str, JsonValue]
    driver: Mapping[str, JsonValue]
    images: Mapping[str, str] = field(default_factory=dict)
    trials: int = 1

    def foreign(self, record: Mapping[str, Any]) -> str:
        """Return a description of the first value in ``record`` that differs from this run; empty if there is none."""
        return next(self._mismatches(record), "")

    def _mismatches(self, record: Mapping[str, Any]) -> Iterator[str]:
        task_id = record.get("task_id")
        family, row = self.tasks.get(task_id, ("", None)) if isinstance(task_id, str) else ("", None)
        if not family:
            yield f"the pack has no task {task_id!r}"
            return
        if record["trial"] > self.trials:
            yield f"its trial is {record['trial']}, but the number of trials of each task is {self.trials}"
        if record.get("task_type") != family:
            yield f"expected task_type {family!r}, got {record.get('task_type')!r}"
        verifier, status = self.verifiers[family], record.get("verification_status")
        if "failure_reason" not in record and (status == "pending") is not (verifier is None):
            yield f"its status is {status!r}, which is impossible for family {family!r}"
        yield from self._other_sources(record["provenance"], {**self.provenance, "row": row, "verifier": verifier})

    def _other_sources(self, found: Mapping[str, Any], expected: Mapping[str, JsonValue]) -> Iterator[str]:
        for name, own in expected.items():
            if found.get(name) != own:
                yield f"its 'provenance.{name}' does not match the run"
        driver = found.get("driver")
        if not isinstance(driver, dict) or any(driver.get(name) != own for name, own in self.driver.items()):
            yield "its 'provenance.driver' does not match the run"
        image = found.get("image")
        if not isinstance(image, dict) or not {"reference", "id"} <= image.keys():
            yield "it does not name its image"
        elif image["id"] and self.images.get(str(image["reference"])) != image["id"]:
            yield f"its image {image['reference']!r} has a different id in the run"
