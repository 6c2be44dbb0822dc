"""The earlier attempts at a trial: their number, their usage, and whether only verification is left to do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from securebench.errors import StorageError
from securebench.harnesses.base import AgentResult
from securebench.results.records.record import recorded_candidate
from securebench.results.records.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.candidates.store import CandidateStore
    from securebench.tasks import SecureBenchTask


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The history of one trial of a task.

    ``trial`` is the number of the trial. ``attempt`` is the number of its next attempt. Both numbers start at 1.

    ``spent`` is the agent's usage in all earlier recorded attempts. ``judge_spent`` is the judge model's usage in the
    same attempts.

    ``unverified`` is the record of the last attempt if its candidate was sealed, and only the verification ended in an
    error. The agent then does not have to run again, which saves money.
    """

    trial: int = 1
    attempt: int = 1
    spent: Usage = field(default_factory=Usage)
    judge_spent: Usage = field(default_factory=Usage)
    unverified: Mapping[str, Any] | None = None


def agent_result_before(task: SecureBenchTask, store: CandidateStore, record: Mapping[str, Any]) -> AgentResult | None:
    """Return the agent's result from an ``unverified`` record; ``None`` if its candidate is missing or altered."""
    try:
        candidate = store.load(task.candidate_kind, record["candidate_digest"])
    except StorageError as error:
        if error.code not in {"candidate-not-stored", "candidate-altered"}:
            raise
        return None
    image = record["provenance"]["image"]["id"]
    return AgentResult(candidate=candidate, image_id=image, recorded=recorded_candidate(record))
