"""What a harness does beside one agent's work: its way out, and what its words mean."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from securebench.candidates.artifact import CandidateArtifact
    from securebench.errors import CandidateError
    from securebench.resources import JsonValue
    from securebench.sandboxes.base import Chunk, CommandResult, Sandbox
    from securebench.sandboxes.doors import Door


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What an agent's end means, as far as its harness can tell. ``failure`` replaces what its exit code would say."""

    failure: CandidateError | None = None
    metadata: Mapping[str, JsonValue] = field(default_factory=dict)
    trajectory: str = ""


class Attendance:
    """One agent's work on one task, attended. A context manager around the life of its sandbox.

    This one has no way out and understands nothing: a plain command's.
    """

    doors: tuple[Door, ...] = ()
    environment: Mapping[str, str] = {}

    def begin(self, sandbox: Sandbox) -> None:
        """Note the sandbox in which the agent is about to run: closing it, from any thread, ends the work."""

    def hear(self, chunk: Chunk) -> None:
        """Take what the agent prints, as it comes."""

    def end(self, result: CommandResult, candidate: CandidateArtifact | None, failure: CandidateError | None) -> Ending:
        """Say what came of it. Nothing of the agent lives any more; ``candidate`` is what it left, sealed.

        ``failure`` is what the exit code, the time limit and the like say. Raises :class:`InfrastructureError` where
        it was not the agent that failed.
        """
        del result, candidate
        return Ending(failure=failure)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of everything. Raises nothing of its own while an error is on its way."""
