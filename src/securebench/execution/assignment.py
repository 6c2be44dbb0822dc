"""An assignment: one trial of a task for a worker to execute. It is passed between processes as bytes."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Self

from securebench.execution.history import History
from securebench.results.records.usage import Usage

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


@dataclass(frozen=True, slots=True)
class Assignment:
    """A trial of the task ``task_id``.

    ``run`` is the digest of the settings of the run. A worker with other settings refuses the assignment.
    """

    run: str
    task_id: str
    history: History

    def to_bytes(self) -> bytes:
        """Return the assignment as ASCII JSON."""
        return json.dumps(_fields(self), default=_fields).encode("ascii")

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return the assignment that :meth:`to_bytes` wrote."""
        content = json.loads(data)
        history = content["history"]
        usages = {name: Usage(**history[name]) for name in ("spent", "judge_spent")}
        return cls(content["run"], content["task_id"], History(**{**history, **usages}))


def _fields(value: DataclassInstance) -> dict[str, Any]:
    """Return the fields of a data class. Unlike ``asdict``, it copies no value."""
    return {one.name: getattr(value, one.name) for one in fields(value)}
