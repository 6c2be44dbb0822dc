"""The signature of a run: a statement about its result, which is signed when the run is closed.

The chain of evidence: the signature covers the SHA-256 of ``run.json``, whose closing has the digests of the journal,
whose records have the digests of the sealed candidates. The form is an in-toto statement with the predicate
``test-result``, so that other tools can read it.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

from securebench.errors import ConfigError, SourceLocation
from securebench.fs.durable import discard, write_durably
from securebench.results.chain import expressible
from securebench.results.record import VerificationStatus
from securebench.results.run_header import HEADER
from securebench.signing.dsse import MAX_ENVELOPE
from securebench.signing.signers import BUNDLE_FILE, ENVELOPE_FILE, open_envelope
from securebench.signing.statement import TEST_RESULT, Statement
from securebench.strict_input.files import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from securebench.resources import JsonValue
    from securebench.results.read import RecordedRun
    from securebench.results.run_header import RunHeader
    from securebench.signing.keys import PublicKey
    from securebench.signing.signers import StatementSigner
    from securebench.signing.sigstore_bundle import SigstoreIdentity
    from securebench.trials import TrialId

SIGNATURES: Final = (ENVELOPE_FILE, BUNDLE_FILE)
"""The files of a run directory that may have its signature."""

_LISTS: Final = {VerificationStatus.PASSED: "passedTests", VerificationStatus.FAILED: "failedTests"}
_NO_VERDICT: Final = "warnedTests"


def sign_run(run: RecordedRun, signer: StatementSigner) -> Path:
    """Sign a closed run, and return the file of the signature. Raises :class:`ConfigError`, :class:`StorageError`."""
    path = run.directory / signer.file
    write_durably(path, signer.sign(statement_of(run).to_bytes()))
    return path


def require_signer(run: RecordedRun, signer: StatementSigner | None) -> None:
    """Raise :class:`ConfigError` if the run has a signature that ``signer`` did not make.

    A run that was resumed anyway would lose its signature, or get that of another signer.
    """
    for file in SIGNATURES:
        if not os.path.lexists(run.directory / file):
            continue
        if signer is None or signer.file != file:
            raise ConfigError(
                f"{run.directory} is signed ({file}), and would lose its signature",
                code="resume-signed",
                hint="resume it with the same --sign, or start a new run with another --output-dir",
            )
        with _checked(run, file) as data:
            payload = signer.open(data)
            if run.header.closing:  # otherwise it was killed when it was resumed, and the file is about to be removed
                _require_statement(payload, run)


def remove_signatures(directory: Path) -> None:
    """Remove the signatures of a run that is resumed: they are not valid any more. Raises :class:`StorageError`."""
    for file in SIGNATURES:
        discard(directory / file)


def check_signature(run: RecordedRun, key: PublicKey | None) -> str:
    """Check ``run.dsse.json``, and return the id of the key that it names.

    Without ``key``, nobody knows who signed: only the statement is checked. Raises :class:`ConfigError`:
    ``signature-missing``, ``signature-invalid``, and the errors of reading records.
    """
    with _checked(run, ENVELOPE_FILE) as data:
        envelope = open_envelope(data, key)
        _require_statement(envelope.payload, run)
    return envelope.key_id


def check_sigstore_bundle(run: RecordedRun, signer: SigstoreIdentity) -> None:
    """Check ``run.sigstore.json``: ``signer`` made this statement. Raises like :func:`check_signature`.

    Also raises :class:`ConfigError` if Sigstore cannot be checked here: ``extra-missing``, ``sigstore-failed``.
    """
    from securebench.signing.sigstore_bundle import verify_sigstore_bundle

    with _checked(run, BUNDLE_FILE) as data:
        _require_statement(verify_sigstore_bundle(data, signer), run)


def statement_of(run: RecordedRun) -> Statement:
    """Return what a signature of this run states.

    Raises :class:`ConfigError` (``run-not-closed``), ``ValueError`` for an invalid header, and the errors of reading
    records.
    """
    closing = run.header.closing
    if closing is None:
        raise ConfigError(f"{run.directory} is not closed", code="run-not-closed", hint="continue it with --resume")
    tests: dict[str, list[TrialId]] = {"passedTests": [], "warnedTests": [], "failedTests": []}
    for record in run.records():
        tests[_LISTS.get(record.status, _NO_VERDICT)].append(record.id)
    result = "PASSED"
    if tests["failedTests"]:
        result = "FAILED"
    elif tests["warnedTests"] or closing.counts["not_run"]:
        result = "WARNED"
    names = {name: list(map(_test_name, sorted(trials))) for name, trials in tests.items()}
    predicate = expressible({"result": result, "configuration": _configuration(run.header), **names})
    return Statement(HEADER, _digest(run.header), TEST_RESULT, cast("dict[str, JsonValue]", predicate))


@contextmanager
def _checked(run: RecordedRun, file: str) -> Iterator[bytes]:
    """Yield the content of a signature. ``ValueError`` in the block becomes :class:`ConfigError`."""
    location = SourceLocation(str(run.directory / file))
    if not os.path.lexists(run.directory / file):
        hint = "ask its author to sign it with 'securebench run --sign KEY'"
        raise ConfigError("the run has no such signature", code="signature-missing", hint=hint, location=location)
    with open_regular(run.directory / file, "signature") as opened:
        data = opened.read(MAX_ENVELOPE + 1)
    try:
        yield data
    except (ValueError, RecursionError) as error:
        hint = "do not use this run as evidence: ask its author for the original files, and for the right key"
        raise ConfigError(
            f"the signature is not valid: {error}", code="signature-invalid", hint=hint, location=location
        ) from None


def _require_statement(payload: bytes, run: RecordedRun) -> None:
    """Raise ``ValueError`` unless ``payload`` is exactly the statement of the run."""
    statement = Statement.from_bytes(payload)
    if (statement.name, statement.digest) != (HEADER, _digest(run.header)):
        raise ValueError(f"{HEADER} is not the file that was signed: it was changed, or belongs to another run")
    if statement != statement_of(run):
        raise ValueError("the statement does not agree with the records of the run")


def _digest(header: RunHeader) -> str:
    """Return the sha256 (hex) of ``run.json``: reading a header ensures that the file has exactly these bytes."""
    return hashlib.sha256(header.to_bytes()).hexdigest()


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
