"""A terminal task, independent of its source format."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from securebench.importers.report import TaskReport
    from securebench.importers.terminal.files import TaskFile
    from securebench.resources import JsonValue


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalTask:
    """One task. ``context`` is its build context; ``image`` names a prebuilt image."""

    benchmark: str
    name: str
    directory: Path
    instruction: str
    dockerfile: str
    context: Mapping[str, TaskFile]
    tests: Mapping[str, TaskFile]
    solution: Mapping[str, TaskFile]
    script: str
    script_name: str
    record: JsonValue
    report: TaskReport
    image: str = ""
    agent_seconds: float | None = None
    verifier_seconds: float | None = None
    limits: Mapping[str, Any] = field(default_factory=dict)
    """The authors' resource limits, such as memory and CPUs."""
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """The task's id in the pack."""
        return f"{self.benchmark}/{self.name}"
