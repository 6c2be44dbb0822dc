"""An assignment: one trial of a task that a worker is to execute, as bytes that any process of the run understands."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Self

from securebench.execution.history import History
from securebench.results.usage import Usage


@dataclass(frozen=True, slots=True)
class Assignment:
    """A trial of the task ``task_id``. ``run`` is the digest of the run settings that its worker must have."""

    run: str
    task_id: str
    history: History

    def to_bytes(self) -> bytes:
        """Return it as ASCII JSON."""
        return json.dumps({"run": self.run, "task_id": self.task_id, "history": asdict(self.history)}).encode("ascii")

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return the assignment that :meth:`to_bytes` wrote."""
        content = json.loads(data)
        history = content["history"]
        usages = {name: Usage(**history[name]) for name in ("spent", "judge_spent")}
        return cls(content["run"], content["task_id"], History(**{**history, **usages}))
