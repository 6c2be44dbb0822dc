"""Objects that the tasks of a run share, and the control that stops the run."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from securebench.tester_config import KeepWorkspaces
from securebench.verifiers.probe import ImageProbe

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from securebench.candidates.store import CandidateStore
    from securebench.dangerous_commands import VerificationPolicy
    from securebench.egress.gateway import Gateway
    from securebench.execution.removal import Removals
    from securebench.harnesses.base import HarnessProducer
    from securebench.progress import Reporter
    from securebench.resources import JsonValue
    from securebench.results.records.commitment import Commitment
    from securebench.sandboxes.base import Limits, SandboxDriver
    from securebench.sandboxes.kept import KeptSandboxes
    from securebench.trials import TrialId
    from securebench.verifiers.base import Verifier
    from securebench.verifiers.model_graded.session import JudgeSession


class RunStoppedError(Exception):
    """The run was stopped while a task ran. The task's result is void and is not recorded."""


class RunControl:
    """Stops a run. Thread safe."""

    def __init__(self) -> None:
        self._draining = threading.Event()
        self._stopping = threading.Event()

    def drain(self) -> None:
        """Start no more tasks; those in flight finish normally."""
        self._draining.set()

    def stop(self) -> None:
        """Start no more tasks, and ignore the results of tasks in flight.

        Call this before closing the sandboxes of these tasks.
        """
        self._draining.set()
        self._stopping.set()

    @property
    def draining(self) -> bool:
        """Whether no more tasks are started."""
        return self._draining.is_set()

    @property
    def stopping(self) -> bool:
        """Whether the run was stopped. The results of tasks in flight then do not count."""
        return self._stopping.is_set()

    def pause(self, seconds: float) -> None:
        """Sleep. Raises :class:`RunStoppedError` as soon as the run is stopped."""
        if self._stopping.wait(seconds):
            raise RunStoppedError

    def check(self) -> None:
        """Raise :class:`RunStoppedError` if the run is stopped."""
        self.pause(0)


def _ignore(_problem: str) -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskContext:
    """What all tasks of a run share. Used by all threads.

    ``provenance`` goes into every record of the run. ``commitment`` makes the commitments in records.
    ``credentials`` are the secrets of the harness and of the judge. ``gateway`` is ``None`` if no agent needs egress.
    """

    run_id: str
    producer: HarnessProducer
    verifier_for: Callable[[str], Verifier | None]
    driver: SandboxDriver
    store: CandidateStore
    workspaces: Path
    scratch: Path
    trajectories: Path
    report: Reporter
    limits: Limits
    policy: VerificationPolicy
    provenance: Mapping[str, JsonValue]
    commitment: Commitment
    removals: Removals
    keep_workspaces: KeepWorkspaces = KeepWorkspaces.ALL
    environment: Mapping[str, str] = field(default_factory=dict)
    credentials: tuple[str, ...] = ()
    gateway: Gateway | None = None
    judge: Callable[[TrialId], JudgeSession] | None = None
    """Returns the session of the judge model for a trial; ``None`` if the run has no judge."""
    control: RunControl = field(default_factory=RunControl)
    note_problem: Callable[[str], None] = _ignore
    """Reports a problem that concerns the whole run. Called from any thread."""
    verifier_output: Path | None = None
    """The directory for the output of verifiers; ``None`` if it is not kept."""
    show_verifier_output: Callable[[TrialId, str], None] | None = None
    """Called with a trial and its verifier's output, from any thread; ``None`` if the output is not shown."""
    probe: ImageProbe = field(default_factory=ImageProbe)
    kept: KeptSandboxes[Any] | None = None
    """Sandboxes that verifiers use for several tasks; ``None`` if such reuse is switched off."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values of ``environment``, and ``credentials``. They are redacted from every record and event."""
        return (*self.environment.values(), *self.credentials)
