"""What a verifier is: it judges a sealed candidate, in its own process or in fresh sandboxes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Self

from securebench.errors import FailurePhase, FailureReason
from securebench.plugins import Extension
from securebench.verifiers.probe import ImageProbe

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from securebench.candidates.artifact import CandidateArtifact
    from securebench.dangerous_commands import VerificationPolicy
    from securebench.progress import Reporter
    from securebench.resources import JsonValue
    from securebench.sandboxes.base import Limits, SandboxDriver
    from securebench.strict_input.models import WireModel
    from securebench.tasks import VerifierView


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyContext:
    """What the run lends to a verifier."""

    driver: SandboxDriver
    policy: VerificationPolicy
    report: Reporter
    limits: Limits
    scratch: Path
    """An empty host directory of this verification alone, removed after it."""
    probe: ImageProbe = field(default_factory=ImageProbe)
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationResult:
    """A verdict. Binary: ``reason`` is ``None`` exactly when it passed.

    ``metadata`` always holds ``verifier``, ``version`` and ``phase`` (the last phase reached). ``message`` is for
    people and never holds a hidden value or an evaluation input.
    """

    reason: FailureReason | None
    message: str = ""
    phase: FailurePhase = FailurePhase.VERIFY
    stdout: str = ""
    stderr: str = ""
    metadata: Mapping[str, JsonValue] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether the candidate is right."""
        return self.reason is None

    @property
    def score(self) -> float:
        """Return 1.0 for a pass, else 0.0."""
        return 1.0 if self.passed else 0.0


class Verifier(Extension, ABC):
    """A verifier of one family. One a run, shared by its threads: it keeps no state between tasks."""

    family: str
    version: str
    """Raised whenever a verdict could change; recorded with every verdict."""
    settings_model: ClassVar[type[WireModel] | None] = None
    """The model of its ``config`` in ``verification.verifiers``. Without one it has no settings."""

    @classmethod
    def from_settings(cls, settings: WireModel) -> Self:
        """Return a verifier with these settings, which are an instance of ``settings_model``."""
        return cls(settings) if cls.settings_model else cls()  # type: ignore[call-arg]

    def check_task(self, view: VerifierView, context: VerifyContext) -> None:
        """Find out that a task can be judged, before an agent works on it: called once for each attempt.

        ``context.scratch`` is not there yet: a check that needs it makes it.

        Raises :class:`MaterializationError` or :class:`ConfigError` for a task that no candidate could pass or fail by
        its own doing, and :class:`InfrastructureError`. What is not certain is no reason.
        """

    @abstractmethod
    def verify(self, view: VerifierView, candidate: CandidateArtifact, context: VerifyContext) -> VerificationResult:
        """Judge ``candidate``. Raises :class:`InfrastructureError`; never anything for what a candidate did."""
