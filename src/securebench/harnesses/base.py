"""What a harness is: it turns an agent's view of a task into a sealed candidate, or a typed failure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from securebench.candidates.artifact import CandidateArtifact
    from securebench.candidates.store import CandidateStore
    from securebench.errors import CandidateError
    from securebench.progress import Reporter
    from securebench.resources import JsonValue
    from securebench.sandboxes.base import Limits, SandboxDriver
    from securebench.tasks import AgentView


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceContext:
    """What the run lends to a harness: a driver, a place for the workspace, a store to seal into."""

    driver: SandboxDriver
    store: CandidateStore
    workspace: Path
    """The host directory of this task's workspace. It is emptied first, and is the agent's alone."""
    report: Reporter
    limits: Limits
    environment: Mapping[str, str] = field(default_factory=dict)
    """The variables named by ``harness.env``, with their values."""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Production:
    """What came of an agent: a candidate, a failure, or both (an agent that failed after it left something)."""

    candidate: CandidateArtifact | None
    failure: CandidateError | None = None
    stdout: str = ""
    stderr: str = ""
    metadata: Mapping[str, JsonValue] = field(default_factory=dict)
    image_id: str = ""
    duration_seconds: float = 0.0


class HarnessProducer(ABC):
    """A harness. One a run, shared by its threads: it keeps no state between tasks."""

    name: str

    @abstractmethod
    def produce(self, view: AgentView, context: ProduceContext) -> Production:
        """Run the agent on one task and seal what it left.

        Whatever the agent does is in the returned :class:`Production`; only :class:`InfrastructureError`,
        :class:`ConfigError` and :class:`MaterializationError` (a pack file that changed under the run) are raised.
        """
