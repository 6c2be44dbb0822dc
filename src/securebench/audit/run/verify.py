"""Check that a run directory from a stranger is complete and unchanged.

If a check fails, the other checks still run where possible. Only files in the run directory are read, and links in it
are not followed.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from securebench.audit.run.candidates import CandidateChecks
from securebench.audit.run.content import ContentChecks
from securebench.audit.run.pack import PackChecks
from securebench.audit.run.report import CheckKind, RunCheck, RunReport
from securebench.audit.run.signature import check_signatures
from securebench.errors import ConfigError
from securebench.limits import GIB
from securebench.plurals import counted
from securebench.results.attestation import RunAttestation
from securebench.results.read import RecordedRun
from securebench.results.records.commitment import KEY_FILE, Commitment
from securebench.results.records.strict_record import task_record_of
from securebench.results.run_directory.closing import log_names
from securebench.results.run_directory.egress_log import MAX_BYTES
from securebench.results.run_directory.files import JOURNAL, SUPERSEDED
from securebench.results.run_directory.header import HEADER, HEADER_VERSION, read_header
from securebench.results.run_directory.lock import is_locked
from securebench.results.run_directory.record_files import RecordFiles
from securebench.strict_input.files import open_regular

if TYPE_CHECKING:
    from securebench.benchmark_pack import BenchmarkPack
    from securebench.results.run_directory.header import RunHeader
    from securebench.results.run_directory.record_files import RecordLine
    from securebench.signing.keys import PublicKey
    from securebench.signing.sigstore_bundle import SigstoreIdentity

_MAX_DAMAGED: Final = 1000
"""After this many problems, the remaining records are not read."""

_EGRESS_ROOM: Final = 16 * 1024 * 1024
"""An egress log that exceeds ``MAX_BYTES`` by more than this many bytes is not read."""

_EGRESS_TOTAL: Final = 4 * GIB
"""Maximum size of all egress logs together, in bytes. A run may have one log for each of its worker processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a run is compared with. ``commitment`` has the run's commitment key, needed to compare hidden content.

    If ``commitment`` is ``None``, the key in the run directory is used, if there is one.
    """

    pack: BenchmarkPack | None = None
    commitment: Commitment | None = None
    other_packs: bool = False
    """Whether the check of ``pack`` skips runs of other benchmarks, as in a suite. Otherwise, it fails for them."""
    public_key: PublicKey | None = None
    """The key that must have signed the run."""
    identity: SigstoreIdentity | None = None
    """The identity that must have signed the run through Sigstore."""


class _TooManyProblemsError(Exception):
    """Raised to stop reading records that have too many problems."""


class _Checks(NamedTuple):
    """All checks, in the order in which they are reported."""

    header: RunCheck
    records: RunCheck
    chain: RunCheck
    root: RunCheck
    counts: RunCheck
    files: RunCheck
    candidates: RunCheck
    candidate_records: RunCheck
    trajectories: RunCheck
    content: RunCheck
    pack: RunCheck
    signature: RunCheck
    closed: RunCheck
    format: RunCheck


def _new_checks() -> _Checks:
    kinds = {
        "header": CheckKind.BYTES,
        "records": CheckKind.BYTES,
        "chain": CheckKind.CHAIN,
        "root": CheckKind.CLOSING,
        "counts": CheckKind.CLOSING,
        "files": CheckKind.CLOSING,
        "candidates": CheckKind.CANDIDATES,
        "candidate_records": CheckKind.CANDIDATES,
        "trajectories": CheckKind.CANDIDATES,
        "content": CheckKind.CONTENT,
        "pack": CheckKind.PACK,
        "signature": CheckKind.SIGNATURE,
        "closed": CheckKind.CLOSED,
        "format": CheckKind.FORMAT,
    }
    return _Checks(*(RunCheck(name, kinds[name]) for name in _Checks._fields))


def verify_run(directory: Path, evidence: Evidence) -> RunReport:
    """Check the run in ``directory``.

    Raises :class:`ConfigError` if it is not a run directory (``run-missing``) or the pack is invalid. Also raises the
    errors of :func:`check_signatures`.
    """
    return _Verification(directory.resolve(), evidence).report()


class _Verification:
    """The checks of one run."""

    def __init__(self, directory: Path, evidence: Evidence) -> None:
        self._directory = directory
        self._evidence = evidence
        self.checks = _new_checks()
        self._sizes = Counter[str]()
        """For each file of records, the total size of the lines that could be parsed, in bytes."""
        self._kinds = {
            "chain-broken": self.checks.chain,
            "closing-mismatch": self.checks.counts,
            "record-foreign": self.checks.content,
            "record-contradictory": self.checks.content,
        }

    def report(self) -> RunReport:
        """Run all checks."""
        header = self._read_header()
        if header is None:
            for check in self.checks:
                check.skipped = f"{HEADER} cannot be read"
            return RunReport(checks=self.checks)
        self._check_closing(header)
        self._check_records(header)
        self._check_files(header)
        signed_by = check_signatures(
            self.checks.signature, RunAttestation(RecordedRun(self._directory, header)), self._evidence
        )
        return RunReport(
            run_id=header.run_id,
            benchmark_id=header.benchmark_id,
            checks=self.checks,
            signed_by=signed_by,
        )

    def _read_header(self) -> RunHeader | None:
        """Return the content of ``run.json``, even if it was changed after the run was closed.

        If it is missing or invalid, add a problem and return ``None``. Raises :class:`ConfigError` (``run-missing``) if
        the directory has neither ``run.json`` nor records.
        """
        check = self.checks.header
        try:
            header = read_header(self._directory, older=True, check_root=False)
        except ConfigError as error:
            check.add(error.message.replace(f"{self._directory}/", ""), HEADER)
            return None
        if header is None:
            if not os.path.lexists(self._directory / JOURNAL):
                raise ConfigError(
                    f"{self._directory} is not a run directory: it has no {HEADER}",
                    code="run-missing",
                    hint="give the --output-dir of a run",
                )
            check.add("it is missing", HEADER)
            return None
        check.text = f"{HEADER} is valid, in format {header.version}"
        return header

    def _check_closing(self, header: RunHeader) -> None:
        """Check the header's format, and its closing section."""
        closing, closed = header.closing, self.checks.closed
        if header.version < HEADER_VERSION:
            message = f"the run cannot be verified: records in format {header.version} have no chain of hashes"
            self.checks.format.add(message, HEADER)
            for check in (self.checks.chain, self.checks.root, self.checks.counts, self.checks.files, closed):
                check.skipped = f"format {header.version} has no chain and no closing section"
            return
        self.checks.format.text = f"the run was written in format {header.version}, the current one"
        if closing is None:
            active = is_locked(self._directory)
            why = "it is in progress" if active else "it was killed; 'securebench run --resume' closes it"
            closed.add(f"the run is not closed: {why}", HEADER)
            for check in (self.checks.root, self.checks.counts, self.checks.files):
                check.skipped = "the run is not closed"
            return
        closed.text = f"the run ended ({closing.ending}), and was closed at {closing.closed_at}"
        self.checks.root.require(
            header.root == closing.root, "'closing.root' is not the hash of the rest of this file", HEADER
        )
        self.checks.root.text = f"{HEADER} without 'closing.root' hashes to {closing.root}"
        count = closing.counts
        parts = ", ".join(f"{count[name]} {name.replace('_', ' ')}" for name in count if count[name])
        self.checks.counts.text = f"{counted(closing.records, 'record')}, as when the run was closed: {parts or 'none'}"

    def _check_records(self, header: RunHeader) -> None:
        """Read all records once, and pass each of them to all checks of records."""
        checks = self.checks
        candidates = CandidateChecks(checks.candidates, checks.candidate_records, checks.trajectories)
        content = ContentChecks(checks.content, header)
        pack = self._pack_checks(header)
        observers = [candidates.add, content.add, *([pack.add] if pack else [])]
        files = RecordFiles(self._directory, header, on_problem=self._note)
        number = 0
        try:
            for line in files:
                number += 1
                self._sizes[line.name] += len(line.data)
                if header.version >= HEADER_VERSION:
                    self._check_form(line)
                for observe in observers:
                    observe(line)
        except _TooManyProblemsError:
            checks.records.add(f"there are more than {_MAX_DAMAGED} problems: the rest of the records was not read")
        records = counted(number, "record")
        form = " and written as SecureBench writes them" if header.version >= HEADER_VERSION else ""
        checks.records.text = f"{records}, valid{form}"
        checks.chain.text = (
            f"{records}, each with the hash of the record before it; no record before the last one is missing"
        )
        candidates.finish(self._directory, is_closed=header.closing is not None)
        content.finish()
        if pack:
            pack.finish()

    def _note(self, error: ConfigError) -> None:
        """Add ``error``, which was found in the records, to the check that covers its error code."""
        check = self._kinds.get(error.code, self.checks.records)
        place = error.problems[0].location
        file = Path(place.file).name if place else ""
        check.add(error.message, file, (place.line or 0) if place else 0)
        if sum(check.found for check in self.checks) > _MAX_DAMAGED:
            raise _TooManyProblemsError

    def _check_form(self, line: RecordLine) -> None:
        """Check that the line is, byte for byte, what SecureBench writes for its content."""
        record = line.record
        try:
            written = task_record_of(record.raw).line(record.sequence, record.raw["previous"])
        except (ValueError, TypeError, KeyError) as error:
            self.checks.records.add(f"invalid record: {error}", line.name, line.number)
            return
        if written != line.data.replace(b"\r\n", b"\n"):  # CRLF has already been reported by RecordFiles
            message = "the line is not formatted as SecureBench writes it"
            self.checks.records.add(message, line.name, line.number)

    def _pack_checks(self, header: RunHeader) -> PackChecks | None:
        check, evidence = self.checks.pack, self._evidence
        if evidence.pack is None:
            check.skipped = "no pack was given (--pack)"
            return None
        if evidence.other_packs and evidence.pack.id != header.benchmark_id:
            check.skipped = f"this run is of a benchmark other than {evidence.pack.id}"
            return None
        commitment = evidence.commitment
        if commitment is None and os.path.lexists(self._directory / KEY_FILE):
            try:
                commitment = Commitment.read(self._directory)
            except ConfigError as error:
                check.add(error.message.replace(f"{self._directory}/", ""))
        return PackChecks(check, header, evidence.pack, commitment)

    def _check_files(self, header: RunHeader) -> None:
        """Compare the files that contain the records, and the egress logs, with the digests in the closing section."""
        check, closing = self.checks.files, header.closing
        if closing is None:
            return
        room = _EGRESS_TOTAL
        for name in sorted({*log_names(self._directory), *closing.files}):
            expected = closing.files.get(name)
            if expected is None:
                check.add("'closing.files' in run.json does not list this file", name)
                continue
            try:
                with open_regular(self._directory / name, "log of the run") as file:
                    # A file that is larger than the records read from it, or than its limit, was changed. Do not hash
                    # it: it may be sparse, and hashing it could take hours.
                    size = os.fstat(file.fileno()).st_size
                    if name in (JOURNAL, SUPERSEDED):
                        is_large = size > self._sizes[name]
                    else:
                        is_large = size > MAX_BYTES + _EGRESS_ROOM
                        room -= 0 if is_large else size
                    if room < 0:
                        check.add(f"the egress logs are larger than {_EGRESS_TOTAL // GIB} GiB, the limit", name)
                        break
                    found = "" if is_large else hashlib.file_digest(file, "sha256").hexdigest()
            except ConfigError as error:
                check.add(error.message, name)
                continue
            check.require(found == expected, "it was changed after the run was closed", name)
        check.text = f"the same as when the run was closed: {', '.join(closing.files) or 'no files'}"
