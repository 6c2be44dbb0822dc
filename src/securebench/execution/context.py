"""What a run lends to each of its tasks, and how it stops them."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from securebench.verifiers.probe import ImageProbe

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from securebench.candidates.store import CandidateStore
    from securebench.dangerous_commands import VerificationPolicy
    from securebench.egress.gateway import Gateway
    from securebench.harnesses.base import HarnessProducer
    from securebench.progress import Reporter
    from securebench.resources import JsonValue
    from securebench.results.commitment import Commitment
    from securebench.sandboxes.base import Limits, SandboxDriver
    from securebench.verifiers.base import Verifier


class RunStoppedError(Exception):
    """The run was stopped while a task ran: whatever came of the task means nothing, and is not recorded."""


class RunControl:
    """Says whether a run goes on. Any thread may ask and tell."""

    def __init__(self) -> None:
        self._draining = threading.Event()
        self._stopping = threading.Event()

    def drain(self) -> None:
        """Hand out no more tasks; those in flight end as they may."""
        self._draining.set()

    def stop(self) -> None:
        """Hand out no more tasks, and void those in flight. To be called before their sandboxes are ended."""
        self._draining.set()
        self._stopping.set()

    @property
    def draining(self) -> bool:
        """Whether no more tasks are handed out."""
        return self._draining.is_set()

    @property
    def stopping(self) -> bool:
        """Whether tasks in flight are void."""
        return self._stopping.is_set()

    def pause(self, seconds: float) -> None:
        """Wait. Raises :class:`RunStoppedError` as soon as the run is stopped."""
        if self._stopping.wait(seconds):
            raise RunStoppedError

    def check(self) -> None:
        """Raise :class:`RunStoppedError` if the run is stopped."""
        self.pause(0)


def _ignore(_point: str) -> None:
    """Pass by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskContext:
    """What a run lends to each of its tasks. Shared by all threads; nothing in it is a task's own.

    ``provenance`` is what all records of the run say of it; ``commitment`` makes what they say of hidden content.
    ``credentials`` are the harness's own secrets; ``gateway`` is there if its agents have a way out. ``checkpoint`` is
    called with the name of every point at which a run may be killed: tests kill it there.
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
    environment: Mapping[str, str] = field(default_factory=dict)
    credentials: tuple[str, ...] = ()
    gateway: Gateway | None = None
    control: RunControl = field(default_factory=RunControl)
    checkpoint: Callable[[str], None] = _ignore
    note_problem: Callable[[str], None] = _ignore
    """Told what concerns the run as a whole. Called by any thread."""
    verifier_output: Path | None = None
    """Where it is kept what verifiers' commands print, if the tester asks for it."""
    show_verifier_output: Callable[[str, str], None] | None = None
    """Given a task's id and the same, if the tester asks for it. Called by any thread."""
    probe: ImageProbe = field(default_factory=ImageProbe)

    @property
    def secrets(self) -> tuple[str, ...]:
        """What stands in no record and no event, whatever the task."""
        return (*self.environment.values(), *self.credentials)
