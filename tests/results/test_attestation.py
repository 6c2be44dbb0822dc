"""The signature of a run: what it states, and how invalid signatures are refused."""

from __future__ import annotations

import base64
import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from securebench.errors import ConfigError
from securebench.results.attestation import RunAttestation
from securebench.results.read import read_run
from securebench.results.records.record import VerificationStatus
from securebench.results.run_directory.header import HEADER
from securebench.signing.dsse import Envelope
from securebench.signing.keys import PrivateKey
from securebench.signing.signers import KeySigner
from securebench.signing.statement import PAYLOAD_TYPE, Statement
from synthetic_run import close_run, forge, header, record, reopen, write_run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

STATUS = VerificationStatus
KEY = PrivateKey.new()
SIGNER = KeySigner(KEY)
ENVELOPE_FILE, BUNDLE_FILE = "run.dsse.json", "run.sigstore.json"
STATUSES = (STATUS.PASSED, STATUS.FAILED, STATUS.PASSED, STATUS.PENDING)
RECORDS = [record(number, status) for number, status in enumerate(STATUSES)]
NAMES = [f"made-up/task-{number:05}" for number in range(6)]


@pytest.fixture
def signed(tmp_path: Path) -> Path:
    """Return the directory of a signed run: two trials passed, one failed, and one has no verdict."""
    directory = write_run(tmp_path / "run", RECORDS)
    attestation(directory).sign(SIGNER)
    return directory


def attestation(directory: Path) -> RunAttestation:
    """Return the attestation of the run in ``directory``."""
    return RunAttestation(read_run(directory))


def refused(directory: Path, key: PrivateKey | None = KEY) -> str:
    """Check that the signature is refused, and return the error message."""
    with pytest.raises(ConfigError) as error:
        attestation(directory).check(key.public if key else None)
    assert error.value.code == "signature-invalid"
    assert ENVELOPE_FILE in str(error.value)
    return error.value.message


def envelope(directory: Path) -> dict[str, Any]:
    """Return the content of the signature file."""
    content: dict[str, Any] = json.loads((directory / ENVELOPE_FILE).read_bytes())
    return content


def test_a_round_trip(signed: Path) -> None:
    """A signature by a key is valid, names that key, and contains the statement of the run."""
    run = attestation(signed)
    assert run.check(KEY.public) == run.check(None) == KEY.public.id
    content = envelope(signed)
    assert content["payloadType"] == "application/vnd.in-toto+json"
    assert base64.b64decode(content["payload"]) == run.statement().to_bytes()


def test_the_statement_is_a_test_result(signed: Path) -> None:
    """The statement has the result, the digests of what was run, and each trial in one of three lists."""
    statement = attestation(signed).statement()
    assert (list(statement.subjects), statement.predicate_type) == (
        [HEADER],
        "https://in-toto.io/attestation/test-result/v0.1",
    )
    predicate = statement.predicate
    assert predicate["result"] == "FAILED"
    assert predicate["passedTests"] == [NAMES[0], NAMES[2]]
    assert predicate["failedTests"] == [NAMES[1]]
    assert predicate["warnedTests"] == [NAMES[3]]
    names = [part["name"] for part in predicate["configuration"]]
    assert names == ["pack made-up", "harness command", "securebench"]
    assert all(set(part["digest"]) == {"sha256"} for part in predicate["configuration"])


@pytest.mark.parametrize(
    ("statuses", "planned", "result"),
    [
        ([STATUS.PASSED, STATUS.PASSED], 2, "PASSED"),
        ([STATUS.PASSED, STATUS.PASSED], 3, "WARNED"),
        ([STATUS.PASSED, STATUS.ERROR], 2, "WARNED"),
        ([STATUS.PASSED, STATUS.PENDING], 2, "WARNED"),
        ([STATUS.FAILED, STATUS.ERROR], 3, "FAILED"),
        ([], 1, "WARNED"),
    ],
)
def test_only_a_complete_success_has_passed(
    statuses: list[VerificationStatus], planned: int, result: str, tmp_path: Path
) -> None:
    """The result is ``WARNED`` if no trial failed, but one lacks a verdict or a record."""
    items = [record(number, status) for number, status in enumerate(statuses)]
    run = attestation(write_run(tmp_path / "run", items, header(planned)))
    assert run.statement().predicate["result"] == result


def test_later_trials_are_named(tmp_path: Path) -> None:
    """The name of a first trial is the id of its task. Names of later trials also have the number of the trial."""
    items = [record(0, trial=trial) for trial in (2, 1)]
    run = attestation(write_run(tmp_path / "run", items, header(2, trials=2)))
    assert run.statement().predicate["passedTests"] == [NAMES[0], f"{NAMES[0]}#trial-2"]


def test_another_key_is_refused(signed: Path) -> None:
    """A signature by another key is refused, even if the envelope names the expected key."""
    other = PrivateKey.new()
    assert "not signed with this key" in refused(signed, other)
    content = envelope(signed)
    content["signatures"][0]["keyid"] = other.public.id
    (signed / ENVELOPE_FILE).write_text(json.dumps(content))
    assert "not signed with this key" in refused(signed, other)
    assert "names the key" in refused(signed)


def test_a_changed_header_is_refused(signed: Path) -> None:
    """A changed header is refused, even if the run is closed again and no key is given."""
    reopen(signed).with_problem("nothing important").write(signed)
    close_run(signed)
    for key in (KEY, None):
        assert "run.json is not the file that was signed" in refused(signed, key)


def test_rebuilt_records_are_refused(signed: Path) -> None:
    """A failure that a forger turns into a pass is detected, even if the records are chained and closed again."""

    def change(items: list[dict[str, Any]]) -> None:
        failed = next(item for item in items if item["verification_status"] == "failed")
        failed.update(verification_status="passed", passed=True, score=1.0)
        for name in ("failure_reason", "failure_phase", "failure_message"):
            failed.pop(name, None)

    forge(signed, change)
    close_run(signed)
    for key in (KEY, None):
        assert "run.json is not the file that was signed" in refused(signed, key)


def test_the_signature_of_another_run_is_refused(signed: Path, tmp_path: Path) -> None:
    """A signature is refused if the same key made it for another run, even if that run has the same results."""
    other = write_run(tmp_path / "other", RECORDS)
    shutil.copy(signed / ENVELOPE_FILE, other / ENVELOPE_FILE)
    assert "belongs to another run" in refused(other)


@pytest.mark.parametrize(
    "change",
    [
        lambda predicate: predicate.update(result="PASSED"),
        lambda predicate: predicate["passedTests"].append(predicate["failedTests"].pop()),
        lambda predicate: predicate["configuration"].pop(),
        lambda predicate: predicate.update(url="https://example.com"),
    ],
)
def test_a_statement_that_says_something_else_is_refused(
    change: Callable[[dict[str, Any]], object], signed: Path
) -> None:
    """A statement that differs from the records is refused, even if it is signed with the right key."""
    honest = attestation(signed).statement()
    predicate = json.loads(json.dumps(honest.predicate))
    change(predicate)
    payload = Statement(honest.subjects, honest.predicate_type, predicate).to_bytes()
    (signed / ENVELOPE_FILE).write_bytes(Envelope.sign(PAYLOAD_TYPE, payload, KEY).to_bytes())
    assert "does not agree with the records" in refused(signed)


def test_another_payload_is_refused(signed: Path) -> None:
    """A payload is refused if it has another type or form, a duplicate key, or no content."""
    payload = attestation(signed).statement().to_bytes()
    for kind, data, message in (
        ("text/plain", payload, "it signs 'text/plain'"),
        (PAYLOAD_TYPE, payload + b"\n", "canonical form"),
        (PAYLOAD_TYPE, payload.replace(b"{", b'{"_type":"x",', 1), "duplicate key"),
        (PAYLOAD_TYPE, b"", "not valid JSON at character 1"),
    ):
        (signed / ENVELOPE_FILE).write_bytes(Envelope.sign(kind, data, KEY).to_bytes())
        assert message in refused(signed)


def test_two_signatures_are_refused(signed: Path) -> None:
    """An envelope with two signatures is refused: a reader could check the wrong one."""
    content = envelope(signed)
    content["signatures"] *= 2
    (signed / ENVELOPE_FILE).write_text(json.dumps(content))
    assert "expected one signature, got 2" in refused(signed)


@pytest.mark.parametrize("end", [0, 1, 100, -2])
def test_a_truncated_signature_is_refused(end: int, signed: Path) -> None:
    """A signature file that is empty or was cut off is refused."""
    path = signed / ENVELOPE_FILE
    path.write_bytes(path.read_bytes()[:end])
    refused(signed, None)


def test_a_run_without_a_signature(tmp_path: Path) -> None:
    """The error code for a missing signature differs from that for an invalid one."""
    directory = write_run(tmp_path / "run", 2)
    with pytest.raises(ConfigError) as error:
        attestation(directory).check(None)
    assert error.value.code == "signature-missing"


def test_a_link_is_not_followed(signed: Path) -> None:
    """A symbolic link in place of the signature is refused: a run directory may come from a stranger."""
    path = signed / ENVELOPE_FILE
    path.rename(signed / "elsewhere")
    path.symlink_to("elsewhere")
    with pytest.raises(ConfigError) as error:
        attestation(signed).check(None)
    assert error.value.code == "file-not-regular"


def test_a_run_that_is_not_closed_cannot_be_signed(tmp_path: Path) -> None:
    """A run that is not closed cannot be signed: it may still change."""
    directory = write_run(tmp_path / "run", 2, closed=False)
    with pytest.raises(ConfigError) as error:
        attestation(directory).sign(SIGNER)
    assert error.value.code == "run-not-closed"
    assert not (directory / ENVELOPE_FILE).exists()


def test_only_its_signer_may_resume_a_signed_run(signed: Path) -> None:
    """A signed run can be resumed only with the same kind of signature and the same key."""
    run = attestation(signed)
    run.require_signer(SIGNER)
    with pytest.raises(ConfigError, match="would remove the signature") as lost:
        run.require_signer(None)
    assert lost.value.code == "resume-signed"
    with pytest.raises(ConfigError, match="not signed with this key"):
        run.require_signer(KeySigner(PrivateKey.new()))
    shutil.copy(signed / ENVELOPE_FILE, signed / BUNDLE_FILE)
    with pytest.raises(ConfigError, match="would remove the signature"):
        run.require_signer(SIGNER)
    run.remove_signatures()
    run.require_signer(None)
    run.require_signer(SIGNER)


def test_a_run_that_was_killed_when_it_was_resumed(signed: Path) -> None:
    """A run killed during a resume may still have its old signature. Only the signer may then resume it again."""
    reopen(signed)
    attestation(signed).require_signer(SIGNER)
    with pytest.raises(ConfigError, match="not signed with this key"):
        attestation(signed).require_signer(KeySigner(PrivateKey.new()))
