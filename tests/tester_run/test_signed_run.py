"""Signed runs: a run is signed however it ends. After it was resumed, it is signed again."""

from __future__ import annotations

import json
import pickle
import shutil
import signal
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest

from run_fakes import FakeProducer
from securebench.errors import ConfigError, EngineError
from securebench.execution import retry
from securebench.faults import install
from securebench.results.attestation import RunAttestation
from securebench.results.read import read_run
from securebench.results.suite import read_suite
from securebench.results.suite_attestation import SuiteAttestation
from securebench.results.summary import RunEnd
from securebench.signing.key_files import create_key, load_public
from securebench.signing.keys import PrivateKey
from securebench.signing.signers import KeySigner
from securebench.signing.sigstore_bundle import TRUST_VARIABLE, SigstoreIdentity
from securebench.tester_config.loader import read_tester_file
from securebench.tester_config.suite import load_suite
from securebench.tester_run import RunOptions
from securebench.tester_run import run as run_module
from securebench.tester_run.suite import run_suite
from securebench.tester_run.worker import PreparedRun
from securebench.testing.scripted_sandbox import ScriptedDriver
from sigstore_authority import ISSUER, sigstore_authority, token
from tester_run.real_run import RealRun
from tester_run.running import make_parts, run, write_run
from tester_run.test_suite import SUITE_YAML

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.sandboxes.oci import OciDriver
    from securebench.tester_run.suite import SuiteSummary

KEY = PrivateKey.new()
SIGNER = KeySigner(KEY)
ENVELOPE_FILE, BUNDLE_FILE = "run.dsse.json", "run.sigstore.json"


class BrokenKey:
    """A key that can sign ``times`` times, like one in an ssh-agent that is then stopped."""

    def __init__(self, times: int) -> None:
        self.public = KEY.public
        self._left = times

    def sign(self, data: bytes) -> bytes:
        """Sign ``data``. Raises :class:`ConfigError` if the key was used too often."""
        self._left -= 1
        if self._left < 0:
            raise ConfigError("the ssh-agent is gone", code="key-unusable")
        return KEY.sign(data)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory with a pack of six tasks and a tester YAML. Infrastructure failures are not retried."""
    monkeypatch.setattr(retry, "BACK_OFF", ())
    write_run(tmp_path)
    return tmp_path


def is_signed(directory: Path) -> bool:
    """Return whether the run is signed with ``KEY``. A wrong signature is an error."""
    if not (directory / ENVELOPE_FILE).exists():
        return False
    return RunAttestation(read_run(directory)).check(KEY.public) == KEY.public.id


def test_a_finished_run_is_signed(root: Path) -> None:
    """A finished run is signed, and a message names the key and the file of the signature."""
    messages: list[str] = []
    summary = run(root, sign=SIGNER, notify=messages.append)
    assert is_signed(root / "results")
    assert summary.problems == ()
    assert messages[-1] == f"signed with the key {KEY.public.fingerprint}: {root / 'results' / ENVELOPE_FILE}"


def test_a_run_is_signed_only_if_the_user_wants_that(root: Path) -> None:
    """A run without a signer is not signed. It can be signed when it is resumed."""
    run(root)
    assert not is_signed(root / "results")
    run(root, resume=True, sign=SIGNER)
    assert is_signed(root / "results")


def test_a_stopped_run_is_signed(root: Path) -> None:
    """A run that stopped after too many errors is signed, and is signed again after it was resumed."""

    def hook(*_: object) -> None:
        raise EngineError("gone")

    summary = run(root, parts=make_parts(FakeProducer(hook=hook)), sign=SIGNER)
    assert (summary.ending, summary.errors, summary.total.not_run) == (RunEnd.STOPPED, 5, 1)
    assert is_signed(root / "results")
    before = (root / "results" / ENVELOPE_FILE).read_bytes()
    assert run(root, resume=True, sign=SIGNER).passed == 6
    assert is_signed(root / "results")
    assert (root / "results" / ENVELOPE_FILE).read_bytes() != before


def test_a_resumed_run_is_not_signed_while_it_runs(root: Path) -> None:
    """The old signature is removed before the first task of a resumed run starts."""
    run(root, limit=3, sign=SIGNER)
    seen: list[bool] = []
    hook = lambda *_: seen.append((root / "results" / ENVELOPE_FILE).exists())  # noqa: E731 - one line
    run(root, parts=make_parts(FakeProducer(hook=hook)), resume=True, sign=SIGNER)
    assert seen == [False] * 3
    assert is_signed(root / "results")


@pytest.mark.parametrize("signer", [None, KeySigner(PrivateKey.new())])
def test_a_signed_run_is_resumed_only_by_its_signer(signer: KeySigner | None, root: Path) -> None:
    """Resuming a signed run without its key is refused, and no file of the run changes."""
    run(root, limit=3, sign=SIGNER)
    before = {path.name: path.read_bytes() for path in (root / "results").iterdir() if path.is_file()}
    with pytest.raises(ConfigError) as refused:
        run(root, resume=True, sign=signer)
    assert refused.value.code in {"resume-signed", "signature-invalid"}
    assert {name: (root / "results" / name).read_bytes() for name in before} == before


def test_a_key_that_does_not_sign_is_found_before_the_run(root: Path) -> None:
    """A key that cannot sign is an error before the run directory is created."""
    with pytest.raises(ConfigError, match="the ssh-agent is gone"):
        run(root, sign=KeySigner(BrokenKey(0)))
    assert not (root / "results").exists()


@pytest.mark.parametrize("place", ["agent", "pack"])
def test_a_key_that_an_agent_could_read_is_refused(place: str, root: Path) -> None:
    """A key or passphrase file in the directory of the agent or the pack is refused. A symlink does not hide this."""
    (root / "link").symlink_to(root / place)
    for secret in (root / place / "key.pem", root / "link" / "passphrase"):
        with pytest.raises(ConfigError, match="which no agent may read") as refused:
            run(root, sign=KeySigner(KEY, [secret]))
        assert refused.value.code == "key-exposed"
    assert not (root / "results").exists()
    run(root, limit=1, sign=KeySigner(KEY, [root / "key.pem"]))


def test_a_key_that_is_gone_at_the_end_costs_only_the_signature(root: Path) -> None:
    """If the key cannot sign at the end, the run is complete and reports that it is unsigned. Resuming signs it."""
    summary = run(root, sign=KeySigner(BrokenKey(1)))
    assert (summary.passed, summary.ending) == (6, RunEnd.FINISHED)
    assert "(--resume tries again): the ssh-agent is gone" in summary.problems[0]
    assert not is_signed(root / "results")
    assert run(root, resume=True, sign=SIGNER).problems == ()
    assert is_signed(root / "results")


def test_a_key_stays_in_the_process_of_the_run(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The options that are sent to workers in other processes do not contain the key."""
    sent: list[Any] = []

    class Spy(PreparedRun):
        def __init__(self, **fields: Any) -> None:
            super().__init__(**fields)
            sent.append(pickle.loads(self.worker_settings)[1])

    monkeypatch.setattr(run_module, "PreparedRun", Spy)
    run(root, limit=1, sign=SIGNER, variables={}, notify=print)
    assert [options.sign for options in sent] == [None]


class SignedSuite:
    """A suite of two runs of one pack, with fake agents and drivers."""

    def __init__(self, root: Path) -> None:
        (root / "suite.yaml").write_text(SUITE_YAML.replace("[one, two]", "[pack]").replace("trials: 2", "trials: 1"))
        self._suite = load_suite(read_tester_file(root / "suite.yaml"))
        self.directory = root / "out"

    def run(self, **options: Any) -> SuiteSummary:
        """Run or resume the suite, and return its summary."""
        parts = make_parts(make_driver=lambda *_: ScriptedDriver())
        return run_suite(self._suite, RunOptions(**options), lambda *_: nullcontext([]), parts)

    def is_signed(self) -> bool:
        """Return whether the suite is signed with ``KEY``. A wrong signature is an error."""
        if not (self.directory / "suite.dsse.json").exists():
            return False
        return self.attestation().check(KEY.public) == KEY.public.id

    def attestation(self) -> SuiteAttestation:
        """Return the attestation of the suite: the statement that its signature covers."""
        suite = read_suite(self.directory)
        assert suite
        return SuiteAttestation(self.directory, suite)


def contents(directory: Path) -> dict[Path, bytes]:
    """Return the content of each file in a directory, by path."""
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_every_run_of_a_suite_is_signed(root: Path) -> None:
    """Each run of a suite and the suite itself are signed with the same key."""
    suite = SignedSuite(root)
    outcomes, problem = suite.run(sign=SIGNER)
    assert (len(outcomes), problem) == (2, "")
    assert all(is_signed(outcome.directory) for outcome in outcomes)
    assert suite.is_signed()


def test_a_resumed_suite_has_a_valid_signature_or_none(root: Path) -> None:
    """While a suite is resumed, its signature is valid or absent at every moment. At the end, it is signed again."""
    suite, messages, states = SignedSuite(root), list[str](), list[bool]()
    assert suite.run(limit=1, sign=SIGNER, notify=messages.append).problem == ""
    assert messages[-1] == f"signed with the key {KEY.public.fingerprint}: {suite.directory / 'suite.dsse.json'}"
    before = (suite.directory / "suite.dsse.json").read_bytes()
    install(lambda *_: states.append(suite.is_signed()))
    try:
        suite.run(limit=2, resume=True, sign=SIGNER)
    finally:
        install(None)
    assert states[0]
    assert states == sorted(states[:-1], reverse=True) + states[-1:]
    assert len(states) > 50
    assert suite.is_signed()
    assert (suite.directory / "suite.dsse.json").read_bytes() != before


@pytest.mark.parametrize("signer", [None, KeySigner(PrivateKey.new())])
def test_a_signed_suite_is_resumed_only_by_its_signer(signer: KeySigner | None, root: Path) -> None:
    """Resuming is refused without the suite's key, or if the suite changed after it was signed. No file is changed."""
    suite = SignedSuite(root)
    suite.run(limit=1, sign=SIGNER)
    before = contents(suite.directory)
    with pytest.raises(ConfigError) as refused:
        suite.run(resume=True, sign=signer)
    assert refused.value.code == ("signature-invalid" if signer else "resume-signed")
    assert suite.is_signed()
    assert contents(suite.directory) == before
    shutil.rmtree(suite.directory / "pack" / "wrong")
    before = contents(suite.directory)
    with pytest.raises(ConfigError, match=r"pack/wrong/run.json' was signed, but is missing"):
        suite.run(resume=True, sign=SIGNER)
    assert contents(suite.directory) == before


def test_a_suite_whose_runs_are_not_all_signed_is_not_signed(root: Path) -> None:
    """If the key fails for the last run, the suite is not signed. Resuming it signs the suite."""
    suite = SignedSuite(root)
    outcomes, problem = suite.run(sign=KeySigner(BrokenKey(3)))
    assert [len(outcome.summary.problems) for outcome in outcomes if outcome.summary] == [0, 1]
    assert "the suite could not be signed (--resume tries again): " in problem
    assert not suite.is_signed()
    assert suite.run(resume=True, sign=SIGNER).problem == ""
    assert suite.is_signed()


def test_a_run_is_signed_with_sigstore(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs and suites are signed with the identity of a CI job. In this test, a test authority certifies it."""
    pytest.importorskip("sigstore")
    from securebench.signing.sigstore_bundle import SigstoreSigner

    for name in ("GITHUB_ACTIONS", "BUILDKITE", "CIRCLECI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GITLAB_CI", "true")
    monkeypatch.setenv("SIGSTORE_ID_TOKEN", token("https://ci.test/job"))
    with sigstore_authority(root) as config:
        monkeypatch.setenv(TRUST_VARIABLE, str(config))
        assert run(root, limit=3, sign=SigstoreSigner()).problems == ()
        run(root, resume=True, sign=SigstoreSigner())
        signed = RunAttestation(read_run(root / "results"))
        signed.check_sigstore(SigstoreIdentity("https://ci.test/job", ISSUER))
        with pytest.raises(ConfigError) as refused:
            signed.check_sigstore(SigstoreIdentity("https://ci.test/other", ISSUER))
        assert refused.value.code == "signature-invalid"
        assert (root / "results" / BUNDLE_FILE).exists()
        suite = SignedSuite(root)
        assert suite.run(limit=1, sign=SigstoreSigner()).problem == ""
        assert suite.run(limit=1, resume=True, sign=SigstoreSigner()).problem == ""
        suite.attestation().check_sigstore(SigstoreIdentity("https://ci.test/job", ISSUER))
        assert not suite.is_signed()
        shutil.rmtree(suite.directory / "pack" / "wrong")
        with pytest.raises(ConfigError, match=r"pack/wrong/run.json' was signed, but is missing"):
            suite.attestation().check_sigstore(SigstoreIdentity("https://ci.test/job", ISSUER))


@pytest.mark.oci
@pytest.mark.usefixtures("base_image")
def test_the_command_signs(tmp_path: Path, oci_driver: OciDriver) -> None:
    """With ``--sign``, the command signs an interrupted run, and signs it again after ``--resume``."""
    key = tmp_path / "key.pem"
    (tmp_path / "passphrase").write_text("open sesame\n")
    create_key(key, b"open sesame")
    public = load_public(tmp_path / "key.pem.pub", lambda: b"")
    real = RealRun(tmp_path, oci_driver, rounds=1, sleep=0.5)
    sign = ("--sign", str(key), "--passphrase-file", str(tmp_path / "passphrase"))
    with real.begun(*sign, after=1) as process:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 130
    assert RunAttestation(read_run(tmp_path / "results")).check(public) == public.id
    refused = real.finish("--resume")
    assert refused.returncode == 1
    assert "[resume-signed]" in refused.stderr
    done = real.finish("--resume", *sign)
    assert done.returncode == 0, done.stderr
    assert f"signed with the key {public.fingerprint}" in done.stderr
    assert RunAttestation(read_run(tmp_path / "results")).check(public) == public.id
    predicate = json.loads(_payload(tmp_path / "results"))["predicate"]
    assert (predicate["result"], len(predicate["passedTests"]), len(predicate["failedTests"])) == ("FAILED", 3, 1)


def _payload(directory: Path) -> bytes:
    from securebench.signing.dsse import Envelope

    return Envelope.from_bytes((directory / ENVELOPE_FILE).read_bytes()).payload
