"""The harness of a run that executes no agents, but judges again the candidates that an earlier run sealed."""

from __future__ import annotations

import os
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from securebench.candidates.sealed_form import TREES
from securebench.errors import CandidateError, ConfigError
from securebench.harnesses.base import AgentResult, HarnessProducer
from securebench.results.recorded_task import MAX_LINE, parse_recorded_task
from securebench.results.records.chain import line_hash
from securebench.results.records.record import VerificationStatus, candidate_fields
from securebench.results.reverification import RecordedVerdict, why_unjudged
from securebench.results.run_directory.files import JOURNAL, numbered_lines
from securebench.results.run_directory.sealed import sealed_bytes
from securebench.strict_input.files import open_regular
from securebench.tasks import DEFAULT_IMAGE, CandidateKind
from securebench.tester_config import HarnessSettings
from securebench.trials import TrialId

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.candidates.artifact import CandidateArtifact
    from securebench.candidates.store import CandidateStore
    from securebench.harnesses.base import ProduceContext
    from securebench.resources import JsonValue
    from securebench.results.read import RecordedRun
    from securebench.results.recorded_task import RecordedTask
    from securebench.results.records.record import RecordEntry
    from securebench.tasks import AgentView

_RECORDED_AS: Final = {CandidateKind.CODE: CandidateKind.TEXT}
"""Maps the kind of candidate that a verifier receives to the kind in the record, if they differ."""


class SealedRun:
    """A run whose candidates are judged again. Its directory is only read, and everything in it is untrusted.

    ``entries`` has a summary of each current record. ``rows`` maps the id of each task to the distinct values of
    ``provenance.row`` in the records of that task. Raises :class:`ConfigError` if the records are damaged.
    """

    def __init__(self, run: RecordedRun) -> None:
        self.run = run
        self._directory: Path = run.directory.resolve()
        self.entries: dict[TrialId, RecordEntry] = {}
        self.rows: dict[str, list[Any]] = {}
        self._lines: dict[TrialId, tuple[int, str]] = {}
        """The byte offset and the hash of each record's line, to read it again."""
        starts = self._line_starts()
        for line in run.lines():
            if not line.is_current:
                continue
            record = line.record
            self.entries[record.id] = record.entry
            self._lines[record.id] = (starts[line.number - 1], line.hash)
            rows = self.rows.setdefault(record.task_id, [])
            if (row := record.provenance.get("row")) not in rows:
                rows.append(row)

    def candidate(
        self, trial: TrialId, kind: CandidateKind, store: CandidateStore
    ) -> tuple[CandidateArtifact, RecordedTask]:
        """Copy the sealed candidate of a trial into ``store``, and return it with its record.

        Raises :class:`ConfigError`: ``candidate-not-stored``, ``candidate-altered``, ``file-not-regular``.
        """
        record = self.record(trial)
        if record.candidate_digest is None or record.candidate_kind is not _RECORDED_AS.get(kind, kind):
            raise _contradictory(f"the record has no candidate of the kind {kind.value}")
        with sealed_bytes(self._directory, kind, record.candidate_digest) as pieces:
            candidate = store.seal_copy(kind, record.candidate_digest, pieces)
        if kind not in TREES and not record.candidate_redacted and candidate.text != record.candidate_text:
            raise _contradictory("the text in the record differs from the sealed candidate")
        return candidate, record

    def record(self, trial: TrialId) -> RecordedTask:
        """Read the record of a trial from disk again, because whole records are not kept in memory."""
        start, digest = self._lines[trial]
        with open_regular(self._directory / JOURNAL, "file of records") as file:
            file.seek(start)
            line = file.readline(MAX_LINE + 1)
        if line_hash(line) != digest:
            raise _contradictory("the record was changed after the run was opened")
        return parse_recorded_task(line)

    def _line_starts(self) -> list[int]:
        """Return the byte offset of each line of the journal, and of its end."""
        if not os.path.lexists(self._directory / JOURNAL):
            return []
        with open_regular(self._directory / JOURNAL, "file of records") as file:
            return [0, *accumulate(len(line) for _, line in numbered_lines(file, MAX_LINE))]


class SealedSettings(HarnessSettings):
    """The settings of :class:`SealedProducer`. ``run`` is :attr:`RunHeader.root` of the run that is judged again."""

    run: str


class SealedProducer(HarnessProducer):
    """Hands out the candidates that an earlier run sealed, instead of running an agent.

    If the agent failed in a trial, the trial fails again for the same reason. If a trial has no record or ended in an
    error, it gets no verdict.
    """

    name = "sealed"
    settings_model = SealedSettings

    def __init__(self, sealed: SealedRun) -> None:
        self._sealed = sealed

    def produce(self, view: AgentView, context: ProduceContext) -> AgentResult:
        """Return the sealed candidate or the agent's failure. Raises :class:`ConfigError` if there is neither."""
        trial = TrialId(view.task_id, context.trial)
        entry = self._sealed.entries.get(trial)
        if entry is None or entry.status is VerificationStatus.ERROR:
            raise ConfigError(why_unjudged(entry), code="candidate-not-stored")
        metadata: dict[str, JsonValue] = {"harness": self.name, "recorded": _recorded(entry)}
        if entry.status is VerificationStatus.FAILED and entry.assurance is None:
            record = self._sealed.record(trial)
            assert record.reason
            assert record.phase
            failure = CandidateError(record.reason, why_unjudged(entry), phase=record.phase)
            return AgentResult(candidate=None, failure=failure, metadata=metadata)
        candidate, record = self._sealed.candidate(trial, view.candidate_kind, context.store)
        image = context.driver.resolve_image(view.environment.image or DEFAULT_IMAGE)
        # Reuse the text of the earlier record. What was redacted stays redacted, and only this text has a patch's diff.
        recorded = candidate_fields(candidate, record.candidate_text, redacted=record.candidate_redacted)
        return AgentResult(candidate=candidate, metadata=metadata, image_id=image.id, recorded=recorded)


def _recorded(entry: RecordEntry) -> dict[str, JsonValue]:
    """Return the earlier verdict on a trial. The new record contains it, so that readers can compare both."""
    verdict = RecordedVerdict.of(entry)
    found = verdict.to_json() if verdict else {"verification_status": entry.status.value}
    return {"sequence": entry.sequence, **found}


def _contradictory(problem: str) -> ConfigError:
    return ConfigError(problem, code="candidate-altered", hint="do not use this run directory as evidence")
