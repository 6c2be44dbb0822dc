"""What a harness is: it turns an agent's view of a task into a sealed candidate, or a typed failure."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Self

from securebench.plugins import Extension
from securebench.tester_config import HarnessSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from securebench.candidates.artifact import CandidateArtifact
    from securebench.candidates.store import CandidateStore
    from securebench.egress.gateway import Gateway
    from securebench.errors import CandidateError, InfrastructureError
    from securebench.images.model import ResolvedImage
    from securebench.progress import Reporter
    from securebench.resources import JsonValue
    from securebench.sandboxes.base import Limits, SandboxDriver
    from securebench.tasks import AgentView


@dataclass(frozen=True, slots=True)
class Spent:
    """What earlier tries of a task asked of a model's provider: they count against the task's budget."""

    requests: int = 0
    tokens: int = 0
    bytes: int = 0


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
    gateway: Gateway | None = None
    """The way out, where agents have one."""
    pause: Callable[[float], None] = time.sleep
    """Wait for so many seconds; raises if the run is stopped meanwhile."""
    spent: Spent = field(default_factory=Spent)
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentResult:
    """What came of an agent: a candidate, a failure, or both (an agent that failed after it left something).

    With a ``fault`` it is neither: the infrastructure failed the agent while it worked. The rest tells what this used
    and how far it came.
    """

    candidate: CandidateArtifact | None
    failure: CandidateError | None = None
    fault: InfrastructureError | None = None
    stdout: str = ""
    stderr: str = ""
    metadata: Mapping[str, JsonValue] = field(default_factory=dict)
    trajectory: str = ""
    """What the agent did, step by step, as JSON lines: its own words, bounded. Empty if it tells none."""
    image_id: str = ""
    duration_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """What a run lends to its harness before the first task.

    ``images`` are those that agents will run in. ``variables`` are the tester's, from the environment and the env
    file. ``agent`` is what an earlier part of the same run said of its agent (:meth:`HarnessProducer.prepare`).
    """

    driver: SandboxDriver
    images: tuple[ResolvedImage, ...]
    variables: Mapping[str, str]
    notify: Callable[[str], None]
    agent: Mapping[str, JsonValue] = field(default_factory=dict)


class HarnessProducer(Extension, ABC):
    """A harness. One a run, shared by its threads: it keeps no state between tasks."""

    name: str
    settings_model: ClassVar[type[HarnessSettings]] = HarnessSettings
    """The model of its ``harness.config``."""

    @classmethod
    def from_settings(cls, settings: HarnessSettings) -> Self:
        """Return a harness with these settings, which are an instance of ``settings_model``."""
        return cls(settings)  # type: ignore[call-arg]  # a subclass decides what it is made of

    @property
    def needs_gateway(self) -> bool:
        """Whether its agents have a way out."""
        return False

    @property
    def credentials(self) -> tuple[str, ...]:
        """The secrets that it holds on the host's side. They stand in no record and no log."""
        return ()

    def prepare(self, run: RunContext) -> Mapping[str, JsonValue]:
        """Get ready, once a run, before any task, and say which agent it is: the same answer means the same agent.

        It stands in ``run.json``, where it decides whether a run may go on, and in every record. Raises
        :class:`ConfigError` and :class:`InfrastructureError`.
        """
        del run
        return {}

    def check_provider(
        self, open_gateway: Callable[[], Gateway], notify: Callable[[str], None]
    ) -> Mapping[str, JsonValue]:
        """Ask the model's provider, if there is one, whether key and model are right. Called before the first task.

        Returns what that used. Raises :class:`ConfigError` for a key or a model that is not accepted; of trouble that
        may pass by ``notify`` is told. ``open_gateway`` makes a gateway, which is closed again here.
        """
        del open_gateway, notify
        return {}

    @abstractmethod
    def produce(self, view: AgentView, context: ProduceContext) -> AgentResult:
        """Run the agent on one task and seal what it left.

        Whatever the agent does is in the returned :class:`AgentResult`, and so is what the infrastructure did once the
        agent had begun (``fault``). Before that :class:`InfrastructureError` is raised; at any time
        :class:`StorageError`, :class:`ConfigError` and :class:`MaterializationError` (a pack file that changed under
        the run) are.
        """
