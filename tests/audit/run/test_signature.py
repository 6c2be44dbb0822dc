"""Signed runs: ``verify-run`` with the public key finds the changes of a forger who lacks the private key."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest

from audit.run.made_runs import copy_of, failed, make_run, rebuild, verify
from audit.run.mutations import FILES, flips
from securebench.errors import ConfigError
from securebench.results.attestation import RunAttestation
from securebench.results.read import read_run
from securebench.results.run_directory import closing
from securebench.results.run_directory.files import JOURNAL
from securebench.signing.keys import PrivateKey
from securebench.signing.signers import KeySigner

if TYPE_CHECKING:
    from pathlib import Path

KEY, OTHER = PrivateKey.new(), PrivateKey.new()
ENVELOPE_FILE = "run.dsse.json"


def sign(directory: Path, key: PrivateKey = KEY) -> None:
    """Sign a run."""
    RunAttestation(read_run(directory)).sign(KeySigner(key))


def code(directory: Path) -> int:
    """Return the exit code of ``verify-run`` with the author's public key, or 1 after a :class:`ConfigError`."""
    try:
        return verify(directory, public_key=KEY.public).exit_code
    except ConfigError:
        return 1


def contents(directory: Path) -> dict[str, bytes]:
    """Return the content of run.json, the files with records, and the signature, by file name."""
    return {name: (directory / name).read_bytes() for name in (*FILES, ENVELOPE_FILE)}


def restore(directory: Path, saved: dict[str, bytes]) -> None:
    """Write the saved files again."""
    for name, content in saved.items():
        (directory / name).write_bytes(content)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a signed run."""
    directory = make_run(tmp_path_factory.mktemp("made") / "run")
    sign(directory)
    return directory


@pytest.fixture
def run(original: Path, tmp_path: Path) -> Path:
    """Return a copy of the signed run that may be changed."""
    return copy_of(original, tmp_path / "run")


@pytest.fixture(autouse=True)
def same_time(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Close every run at the time of the signed one, so that a rebuilt run differs from it only by what was changed."""
    closed = read_run(run).header.closing
    assert closed is not None
    monkeypatch.setattr(closing, "time", Mock(strftime=Mock(return_value=closed.closed_at)))


@pytest.fixture
def saved(run: Path) -> dict[str, bytes]:
    """Return the content of the files of the signed run."""
    return contents(run)


def _pass_all(records: list[dict[str, object]]) -> None:
    passed = next(record for record in records if record["verification_status"] == "passed")
    for record in records:
        if record["verification_status"] == "failed":
            record |= {"verification_status": "passed", "passed": True, "score": 1.0}
            record["verifier_metadata"] = passed["verifier_metadata"]
            for name in ("failure_reason", "failure_phase", "failure_message"):
                record.pop(name)


def test_a_signed_run_is_right(run: Path) -> None:
    """The report on a signed run names the key.

    If no key is given, the signature is not checked. The run is only compared with the signed statement.
    """
    report = verify(run, public_key=KEY.public)
    assert failed(report) == {}
    assert report.exit_code == 0
    assert report.signed_by == f"key {KEY.public.fingerprint}"
    alone = verify(run)
    signature = next(check for check in alone.checks if check.name == "signature")
    assert (alone.exit_code, alone.signed_by, signature.state.value) == (0, "", "not checked")
    assert KEY.public.id in signature.summary


def test_a_forger_who_rebuilds_everything_fails_at_the_signature(run: Path) -> None:
    """If a forger changes verdicts and recomputes chain, closing and root, only the check of the signature fails.

    The exit code is then 16.
    """
    rebuild(run, _pass_all)
    report = verify(run, public_key=KEY.public)
    assert list(failed(report)) == ["signature"]
    assert "run.json is not the file that was signed" in failed(report)["signature"][0]
    assert report.exit_code == 16
    assert verify(run).exit_code == 16


def test_a_forger_cannot_sign_again_with_another_key(run: Path) -> None:
    """A changed run that a forger signed with another key fails if the key of the author is given."""
    rebuild(run, _pass_all)
    sign(run, OTHER)
    assert verify(run).exit_code == 0
    report = verify(run, public_key=KEY.public)
    assert report.exit_code == 16
    assert "not signed with this key" in failed(report)["signature"][0]


def test_a_forger_cannot_remove_the_signature(run: Path) -> None:
    """If a key is given, a run without a signature fails like one with a wrong signature."""
    (run / ENVELOPE_FILE).unlink()
    assert code(run) == 16
    assert verify(run).exit_code == 0


def test_a_signature_of_another_run_does_not_fit(run: Path, tmp_path: Path) -> None:
    """The signature of another run is refused, even if it is by the same author for the same pack."""
    other = make_run(tmp_path / "other")
    sign(other)
    shutil.copy(other / ENVELOPE_FILE, run / ENVELOPE_FILE)
    assert code(run) == 16
    assert verify(run).exit_code == 16


@pytest.mark.parametrize("kind", ["link", "fifo", "directory", "empty"])
def test_a_signature_is_a_regular_file(run: Path, kind: str) -> None:
    """A signature file that is empty, or is a link, a FIFO or a directory, is refused."""
    path = run / ENVELOPE_FILE
    moved = path.rename(run / "moved")
    if kind == "link":
        path.symlink_to(moved)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        path.touch()
    assert code(run) == 16


@pytest.mark.parametrize("name", [*FILES, ENVELOPE_FILE])
@pytest.mark.parametrize("is_rebuilt", [False, True])
def test_no_flipped_byte_is_overlooked(run: Path, name: str, is_rebuilt: bool, saved: dict[str, bytes]) -> None:
    """A change of any byte of a sample is found, even if chain, closing and root are recomputed afterwards.

    Recomputing undoes some changes, such as that of a hash in the chain. The run is then the original one and passes.
    """
    found = 0
    for at, data in flips(saved[name], 60):
        restore(run, saved)
        (run / name).write_bytes(data)
        if is_rebuilt:
            try:
                rebuild(run)
            except (ValueError, KeyError, TypeError, ConfigError):
                continue  # the changed file cannot be parsed, so nothing can be recomputed
        is_changed = contents(run) != saved
        assert (code(run) != 0) is is_changed, (name, at)
        found += is_changed
    assert found


def test_every_rebuilt_change_of_a_verdict_fails(run: Path, saved: dict[str, bytes]) -> None:
    """A changed verdict, tag or trial number in any record is found, even if chain and closing are recomputed."""
    for at, record in enumerate(map(json.loads, saved[JOURNAL].splitlines())):
        for change in ({"passed": True, "score": 1.0, "verification_status": "passed"}, {"tags": ["x"]}, {"trial": 2}):
            rebuild(run, lambda records, at=at, change=change: records[at].update(change))  # type: ignore[misc]
            assert (code(run) != 0) is (record | change != record), (at, change)
            restore(run, saved)
    assert code(run) == 0
