"""What a run knows of a task from before: how often it was tried, what that used, and what is left to do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from securebench.errors import StorageError
from securebench.harnesses.base import AgentResult
from securebench.results.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.candidates.store import CandidateStore
    from securebench.tasks import SecureBenchTask


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The history of one task. ``spent`` is what all attempts before this one used.

    ``unverified`` is the record of the last attempt if the agent had worked then, its candidate was sealed, and only
    the verification failed for no fault of the candidate's: nobody has to run, or to pay, the agent again.
    """

    attempt: int = 1
    spent: Usage = field(default_factory=Usage)
    unverified: Mapping[str, Any] | None = None


def agent_result_before(task: SecureBenchTask, store: CandidateStore, record: Mapping[str, Any]) -> AgentResult | None:
    """Return what the agent of an ``unverified`` record left, or ``None`` if that is no longer as it was sealed."""
    try:
        candidate = store.load(task.candidate_kind, record["candidate_digest"])
    except StorageError as error:
        if error.code not in {"candidate-not-stored", "candidate-altered"}:
            raise
        return None
    return AgentResult(candidate=candidate, image_id=record["provenance"]["image"]["id"])
