"""Check that the sealed candidates of a run are complete and unchanged, and match its records.

Each file is read once, however many records name it. Its size is limited, and only text is kept in memory.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final

from securebench import plugins
from securebench.candidates.store import CANDIDATES, UNFINISHED
from securebench.errors import ConfigError
from securebench.fs.safe_open import TreeRefusal, TreeRefusedError, opened_below, opened_root
from securebench.patches.model import PatchError
from securebench.patches.parse import ChangeKind, parse
from securebench.plugins import ExtensionKind
from securebench.plurals import counted
from securebench.resources import REDACTED
from securebench.results.records.record import VerificationStatus
from securebench.results.records.trajectory import TRAJECTORIES
from securebench.results.run_directory.files import opened_run_file
from securebench.results.run_directory.sealed import sealed_content
from securebench.strict_input.faults import shown
from securebench.tasks import CANDIDATE_KINDS, CandidateKind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from securebench.audit.run.report import RunCheck
    from securebench.results.recorded_task import RecordedTask
    from securebench.results.run_directory.record_files import RecordLine
    from securebench.results.run_directory.sealed import SealedCandidate

_MAX_LISTED: Final = 1000
"""After this many files that no record names, the rest of ``candidates/`` is not listed."""

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_MAX_TRAJECTORY: Final = 5 * 1024 * 1024
"""The maximum number of bytes that are read from a trajectory. A run writes fewer."""


@dataclass(slots=True)
class _CandidateRecords:
    """What records say about one sealed candidate. ``file`` and ``line`` are where the first of these records is."""

    file: str
    line: int
    kinds: set[CandidateKind] = field(default_factory=set)
    patches: set[str] = field(default_factory=set)
    """For each recorded patch, a digest of the paths that it changes."""
    without_text: bool = False
    """Whether a record has only the digest of this candidate. This is valid only if the candidate is not UTF-8 text."""


class CandidateChecks:
    """Collects what records say about candidates and trajectories, and finally compares it with the files."""

    def __init__(self, files: RunCheck, records: RunCheck, trajectories: RunCheck) -> None:
        self._files, self._records, self._trajectories = files, records, trajectories
        self._candidates: dict[str, _CandidateRecords] = {}
        self._steps: dict[str, str] = {}
        """The recorded digest of each trajectory, by its file name."""
        self._compared = 0

    def add(self, line: RecordLine) -> None:
        """Check what a record says about its candidate, and note what it says about trajectories."""
        record = line.record
        for problem in _contradictions(record):
            self._records.add(problem, line.name, line.number)
        for name, recorded in record.trajectories.items():
            is_same = self._steps.setdefault(name, recorded) == recorded
            message = f"another record has a different digest of the trajectory {shown(name)}"
            self._trajectories.require(is_same, message, line.name, line.number)
        if (digest := record.candidate_digest) is None:
            return
        self._compared += 1
        candidate = self._candidates.setdefault(digest, _CandidateRecords(line.name, line.number))
        candidate.kinds |= {record.candidate_kind} if record.candidate_kind else set()
        candidate.without_text |= record.candidate_kind is None
        if record.candidate_kind is CandidateKind.PATCH:
            try:
                candidate.patches |= _recorded_changes(record)
            except PatchError as error:
                self._records.add(f"'candidate_patch' is not a patch: {error.message}", line.name, line.number)

    def finish(self, directory: Path, *, is_closed: bool) -> None:
        """Compare the files in ``directory`` with the records.

        A run that is not closed may also have unfinished files, and sealed candidates that no record names.
        """
        size = sum(self._check_file(directory, digest, candidate) for digest, candidate in self._candidates.items())
        self._check_unknown(directory, is_closed=is_closed)
        candidates = counted(len(self._candidates), "sealed candidate")
        self._files.text = f"{candidates}, {counted(size, 'byte')}, with the recorded digests"
        self._records.text = f"{counted(self._compared, 'record')}, consistent with the sealed candidates"
        self._check_trajectories(directory)

    def _check_file(self, directory: Path, digest: str, candidate: _CandidateRecords) -> int:
        """Check one candidate, and return its size."""
        trees = (CandidateKind.PATCH, CandidateKind.WORKSPACE)
        kind = next((kind for kind in trees if kind in candidate.kinds), CandidateKind.TEXT)
        try:
            sealed = sealed_content(directory, kind, digest)
        except ConfigError as error:
            self._files.add(error.message, f"{CANDIDATES}/{digest}")
            return 0
        if candidate.patches - {_digest_of(_sealed_changes(sealed))}:
            message = "'candidate_patch' and the sealed patch change different paths"
            self._records.add(message, candidate.file, candidate.line)
        if candidate.without_text and sealed.text is not None:
            self._records.add(
                "the candidate is text, but the record does not contain it", candidate.file, candidate.line
            )
        return sealed.size

    def _check_unknown(self, directory: Path, *, is_closed: bool) -> None:
        try:
            unknown = list(islice(self._unknown(directory, is_closed=is_closed), _MAX_LISTED))
        except TreeRefusedError as error:
            if error.refusal is not TreeRefusal.MISSING:
                self._files.add(str(error))
            return
        for name in sorted(unknown):
            self._files.add("no record names this file", f"{CANDIDATES}/{name}")

    def _unknown(self, directory: Path, *, is_closed: bool) -> Iterator[str]:
        with (
            opened_root(directory) as top,
            opened_below(top, [os.fsencode(CANDIDATES)]) as below,
            os.scandir(below) as entries,
        ):
            for entry in entries:
                # A run that is not closed may have sealed a candidate whose record was never written.
                is_left = not is_closed and (entry.name.startswith(UNFINISHED) or _DIGEST.fullmatch(entry.name))
                if entry.name not in self._candidates and not is_left:
                    yield entry.name

    def _check_trajectories(self, directory: Path) -> None:
        missing = compared = 0
        for name, digest in self._steps.items():
            try:
                with opened_run_file(directory, TRAJECTORIES, name) as file:
                    data = file.read(_MAX_TRAJECTORY)
            except ConfigError as error:
                missing += error.code == "file-missing"
                if error.code != "file-missing":
                    self._trajectories.add(error.message, f"{TRAJECTORIES}/{name}")
                continue
            compared += 1
            is_same = hashlib.sha256(data).hexdigest() == digest
            self._trajectories.require(is_same, "its digest differs from the recorded one", f"{TRAJECTORIES}/{name}")
        checked = counted(compared, "trajectory", "trajectories")
        self._trajectories.text = f"{checked} compared with the recorded digests"
        if missing:
            self._trajectories.text += f"; {missing} missing, which is allowed"


def _contradictions(record: RecordedTask) -> Iterator[str]:
    """Yield contradictions in what a record says about its candidate."""
    digest, kind, raw = record.candidate_digest, record.candidate_kind, record.raw
    if digest is None:
        if kind is not None or raw.get("candidate_redacted") is not None:
            yield "the record has a candidate without 'candidate_digest'"
        if record.status in {VerificationStatus.PASSED, VerificationStatus.PENDING}:
            yield f"the record has the status {record.status.value!r} without a candidate"
        return
    if not isinstance(raw.get("candidate_redacted"), bool):
        yield "'candidate_redacted' is neither true nor false"
    expected = _kind_of(record.family)
    if expected and kind is not expected and not (kind is None and expected is CandidateKind.TEXT):
        found = kind.value if kind else "nothing"
        yield f"the candidate of a {record.family} task must be a {expected.value}, but the record has {found}"
    if kind is CandidateKind.WORKSPACE and raw["candidate_workspace"] != f"sha256:{digest}":
        yield "'candidate_workspace' is not the digest of the candidate"
    if kind is CandidateKind.TEXT and not record.candidate_redacted:
        text = (record.candidate_text or "").encode("utf-8", "surrogatepass")
        if hashlib.sha256(text).hexdigest() != digest:
            yield "'candidate_text' is not the sealed candidate, although 'candidate_redacted' is false"


def _kind_of(family: str) -> CandidateKind | None:
    """Return the kind of a family's candidates (``TEXT`` for code), or ``None`` for a family of another package."""
    if family not in plugins.own_names(ExtensionKind.FAMILY):
        return None
    kind = CANDIDATE_KINDS.get(family, CandidateKind.TEXT)
    return CandidateKind.TEXT if kind is CandidateKind.CODE else kind


def _recorded_changes(record: RecordedTask) -> set[str]:
    """Return a set with a single digest: that of all paths that a recorded patch changes.

    For a redacted record, the set is empty if the patch was clipped, cannot be parsed or has a redacted path.
    Raises :class:`PatchError` if a patch that is not redacted cannot be parsed.
    """
    text = record.candidate_text or ""
    if record.candidate_redacted and text.endswith("more characters]"):  # files that did not fit were left out
        return set()
    try:
        patches = parse(text.encode("utf-8", "surrogatepass")) if text else []
    except PatchError:
        if record.candidate_redacted:
            return set()
        raise
    changes = {_shown_path(patch.new): patch.kind is ChangeKind.DELETE for patch in patches}
    if record.candidate_redacted and any(REDACTED in path for path in changes):
        return set()
    return {_digest_of(changes)}


def _sealed_changes(sealed: SealedCandidate) -> dict[str, bool]:
    return {file.path: file.removed for file in sealed.files}


def _shown_path(path: bytes) -> str:
    return path.decode("utf-8", "backslashreplace")


def _digest_of(changes: dict[str, bool]) -> str:
    """Return a digest of ``changes``, which maps each changed path to whether it was removed."""
    return hashlib.sha256(repr(sorted(changes.items())).encode("utf-8")).hexdigest()
