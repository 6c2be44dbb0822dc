"""Signatures of results: a statement about a run or a suite, signed when the run or suite has ended.

The signature of a run covers the SHA-256 of ``run.json``. The signature of a suite covers the SHA-256 of ``suite.json``
and of the ``run.json`` of each run that was started. The closing section of ``run.json`` has the digest of the journal,
and the records of the journal have the digests of the sealed candidates. The statement is in in-toto format with the
predicate ``test-result``, so that other tools can read it.
"""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from securebench.errors import ConfigError, SourceLocation
from securebench.fs.durable import discard, storage_errors, sync_directory, write_durably
from securebench.results.records.chain import expressible
from securebench.results.records.record import VerificationStatus
from securebench.results.run_directory.header import HEADER
from securebench.signing.dsse import MAX_ENVELOPE
from securebench.signing.signers import BUNDLE_SUFFIX, ENVELOPE_SUFFIX, open_envelope
from securebench.signing.statement import TEST_RESULT, Statement
from securebench.strict_input.faults import shown
from securebench.strict_input.files import open_regular
from securebench.strict_input.json_text import json_problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from securebench.resources import JsonValue
    from securebench.results.read import RecordedRun
    from securebench.results.run_directory.header import RunHeader
    from securebench.signing.keys import PublicKey
    from securebench.signing.signers import StatementSigner
    from securebench.signing.sigstore_bundle import SigstoreIdentity
    from securebench.trials import TrialId

_LISTS: Final = {VerificationStatus.PASSED: "passedTests", VerificationStatus.FAILED: "failedTests"}
_NO_VERDICT: Final = "warnedTests"


def signature_files(kind: str) -> tuple[str, ...]:
    """Return the names of the files that may contain the signature of a ``run`` or a ``suite``."""
    return tuple(f"{kind}{suffix}" for suffix in (ENVELOPE_SUFFIX, BUNDLE_SUFFIX))


class Attestation(ABC):
    """What a signature of the results in a directory states."""

    kind: ClassVar[str]
    """``run`` or ``suite``: used in messages, and as the first part of the names of signature files."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @abstractmethod
    def digests(self) -> dict[str, str]:
        """Return the sha256 (hex) of each file that the signature covers, by its path in the directory."""

    @abstractmethod
    def statement(self) -> Statement:
        """Return the statement that is signed.

        Raises :class:`ConfigError` (``run-not-closed``), ``ValueError`` for an invalid header, and the errors of
        reading records.
        """

    @property
    def has_ended(self) -> bool:
        """Whether the results are final.

        If they are not, a signature may be out of date: the run or suite may have been resumed after it was signed, and
        then killed.
        """
        return True

    def sign(self, signer: StatementSigner) -> Path:
        """Sign the statement, and return the signature's path.

        Raises :class:`ConfigError`, :class:`StorageError`, and the errors of :meth:`statement`.
        """
        path = self.directory / f"{self.kind}{signer.suffix}"
        write_durably(path, signer.sign(self.statement().to_bytes()))
        return path

    def require_signer(self, signer: StatementSigner | None) -> None:
        """Raise :class:`ConfigError` if there is a signature that ``signer`` did not make.

        Resuming the run or suite would remove that signature, or replace it with a signature by ``signer``.
        """
        for file in signature_files(self.kind):
            if not os.path.lexists(self.directory / file):
                continue
            if signer is None or file != f"{self.kind}{signer.suffix}":
                raise ConfigError(
                    f"{self.directory} is signed ({file}); resuming without the same --sign would remove the signature",
                    code="resume-signed",
                    hint="use the same --sign as before, or start a new run with another --output-dir",
                )
            self.require_signed_by(signer)

    def require_signed_by(self, signer: StatementSigner) -> None:
        """Raise :class:`ConfigError` unless ``signer`` signed the results.

        If the results are not final, only the signer is checked, not the statement. The codes are ``signature-missing``
        and ``signature-invalid``. Other errors are those of :meth:`check` and :meth:`check_sigstore`.
        """
        with self._signature(signer.suffix) as data:
            payload = signer.open(data)
            if self.has_ended:
                self._require_statement(payload)

    def remove_signatures(self) -> None:
        """Remove all signatures, before a resumed run or suite changes anything. Raises :class:`StorageError`."""
        found = [path for file in signature_files(self.kind) if os.path.lexists(path := self.directory / file)]
        for path in found:
            discard(path)
        if found:
            with storage_errors(self.directory):
                sync_directory(self.directory)

    def check(self, key: PublicKey | None) -> str:
        """Check the signature in the envelope, and return the id of the key that the envelope names.

        If ``key`` is ``None``, only the signed statement is checked, not who signed it. Raises :class:`ConfigError`:
        ``signature-missing``, ``signature-invalid``, ``run-not-closed``, and the errors of reading records.
        """
        with self._signature(ENVELOPE_SUFFIX) as data:
            envelope = open_envelope(data, key)
            self._require_statement(envelope.payload)
        return envelope.key_id

    def check_sigstore(self, signer: SigstoreIdentity) -> None:
        """Check that ``signer`` signed this statement with Sigstore.

        Raises the errors of :meth:`check`. Also raises :class:`ConfigError` if Sigstore cannot be checked here:
        ``extra-missing``, ``sigstore-failed``.
        """
        from securebench.signing.sigstore_bundle import verify_sigstore_bundle

        with self._signature(BUNDLE_SUFFIX) as data:
            self._require_statement(verify_sigstore_bundle(data, signer))

    @contextmanager
    def _signature(self, suffix: str) -> Iterator[bytes]:
        """Yield the content of a signature.

        ``ValueError`` and ``RecursionError`` in the ``with`` block become :class:`ConfigError`.
        """
        path = self.directory / f"{self.kind}{suffix}"
        location = SourceLocation(str(path))
        if not os.path.lexists(path):
            hint = "ask the author of the results to sign them with 'securebench run --sign'"
            message = f"the {self.kind} lacks this signature file"
            raise ConfigError(message, code="signature-missing", hint=hint, location=location)
        with open_regular(path, "signature") as opened:
            data = opened.read(MAX_ENVELOPE + 1)
        try:
            yield data
        except (ValueError, RecursionError) as error:
            hint = f"do not use this {self.kind} as evidence: ask its author for the original files, and the right key"
            problem = f"the signature is not valid: {json_problem(error)}"
            raise ConfigError(problem, code="signature-invalid", hint=hint, location=location) from None

    def _require_statement(self, payload: bytes) -> None:
        """Raise ``ValueError`` unless ``payload`` is exactly the statement of the results."""
        signed, found = Statement.from_bytes(payload).subjects, self.digests()
        for name in [*signed, *found]:
            if name not in found:
                raise ValueError(f"{shown(name)} was signed, but is missing")
            if name not in signed:
                raise ValueError(f"{shown(name)} was not signed with the other files: it was added later")
            if signed[name] != found[name]:
                raise ValueError(
                    f"{name} is not the file that was signed: it was changed, or belongs to another {self.kind}"
                )
        if payload != self.statement().to_bytes():
            raise ValueError(f"the signed statement does not agree with the records of the {self.kind}")


class RunAttestation(Attestation):
    """The statement about a closed run: its result, and the result of each trial."""

    kind = "run"

    def __init__(self, run: RecordedRun) -> None:
        super().__init__(run.directory)
        self._run = run

    @property
    def has_ended(self) -> bool:
        """Whether the run is closed."""
        return self._run.header.closing is not None

    def digests(self) -> dict[str, str]:
        """See :class:`Attestation`.

        In the current format version, the header's ``to_bytes()`` returns exactly the bytes of ``run.json``, because
        reading refuses a header in any other form.
        """
        return {HEADER: hashlib.sha256(self._run.header.to_bytes()).hexdigest()}

    def statement(self) -> Statement:
        """See :class:`Attestation`."""
        closing = self._run.header.closing
        if closing is None:
            raise not_closed(self.directory)
        tests: dict[str, list[TrialId]] = {"passedTests": [], "warnedTests": [], "failedTests": []}
        for record in self._run.records():
            tests[_LISTS.get(record.status, _NO_VERDICT)].append(record.id)
        names = {name: list(map(_test_name, sorted(trials))) for name, trials in tests.items()}
        configuration = _configuration(self._run.header)
        return result_statement(self.digests(), configuration, names, is_complete=not closing.counts["not_run"])


def not_closed(directory: Path) -> ConfigError:
    """Return the error for a run that may still change."""
    return ConfigError(f"{directory} is not closed", code="run-not-closed", hint="continue it with --resume")


def result_statement(
    subjects: Mapping[str, str],
    configuration: Sequence[Mapping[str, Any]],
    tests: Mapping[str, Sequence[str]],
    *,
    is_complete: bool = True,
) -> Statement:
    """Return a statement with the predicate ``test-result``. Its result is ``PASSED`` only if everything passed."""
    result = "PASSED"
    if tests["failedTests"]:
        result = "FAILED"
    elif tests["warnedTests"] or not is_complete:
        result = "WARNED"
    predicate = expressible({"result": result, "configuration": configuration, **tests})
    return Statement(subjects, TEST_RESULT, cast("dict[str, JsonValue]", predicate))


def _configuration(header: RunHeader) -> list[dict[str, Any]]:
    """Return what was run, as descriptors of in-toto: the pack, the harness with its agent, and SecureBench."""
    decisive: Any = header.decisive
    try:
        pack, harness, framework = (decisive[name] for name in ("pack", "harness", "framework"))
        version = decisive["benchmark"]["version"]
        return [
            {
                "name": f"pack {header.benchmark_id}",
                "digest": {"sha256": pack["public_digest"]},
                "annotations": {"version": version, "commitment": pack["commitment"]},
            },
            {"name": f"harness {header.label}", "digest": {"sha256": harness["digest"]}},
            {
                "name": "securebench",
                "digest": {"sha256": framework["digest"]},
                "annotations": {"version": framework["version"]},
            },
        ]
    except (KeyError, TypeError) as error:
        raise ValueError(f"{HEADER} does not describe pack, harness and framework: {error}") from None


def _test_name(trial: TrialId) -> str:
    return trial.task_id if trial.trial == 1 else f"{trial.task_id}#trial-{trial.trial}"
