"""Signed suites: ``verify-run`` with the public key finds the changes of a forger who lacks the private key.

The forger has other runs and suites of the same author, another key, and the code of SecureBench.
"""

from __future__ import annotations

import io
import json
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest
from click.testing import CliRunner

from audit.run.made_runs import copy_of, make_run, rebuild
from securebench.audit.run.report import CheckKind
from securebench.audit.run.suite import verify_suite
from securebench.audit.run.verify import Evidence
from securebench.cli import cli
from securebench.errors import ConfigError
from securebench.results.attestation import RunAttestation
from securebench.results.bundle import write_bundle
from securebench.results.read import read_run
from securebench.results.run_directory.files import SUITE
from securebench.results.run_directory.header import HEADER
from securebench.results.suite import RecordedSuite, read_suite, write_suite
from securebench.results.suite_attestation import SuiteAttestation
from securebench.signing.dsse import Envelope
from securebench.signing.keys import PrivateKey
from securebench.signing.signers import KeySigner
from securebench.signing.statement import PAYLOAD_TYPE
from synthetic_run import reopen

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from securebench.audit.run.suite import SuiteReport

KEY, OTHER = PrivateKey.new(), PrivateKey.new()
SIGNATURE: Final = "suite.dsse.json"
ONE, TWO, THREE = "pack/one", "pack/two", "pack/three"
RUNS: Final = {path: {"pack": "pack", "agent": path[5:]} for path in (ONE, TWO, THREE)}


def sign_run(directory: Path, key: PrivateKey = KEY) -> None:
    """Sign a run."""
    RunAttestation(read_run(directory)).sign(KeySigner(key))


def listed(suite: Path) -> RecordedSuite:
    """Return the content of ``suite.json``."""
    found = read_suite(suite)
    assert found
    return found


def sign_anyway(suite: Path, key: PrivateKey) -> None:
    """Sign a suite with ``key``, even if its runs were signed with another key."""
    payload = SuiteAttestation(suite, listed(suite)).statement().to_bytes()
    (suite / SIGNATURE).write_bytes(Envelope.sign(PAYLOAD_TYPE, payload, key).to_bytes())


def new_suite(suite: Path, run: Path, paths: dict[str, dict[str, str]]) -> None:
    """Make a signed suite. Its runs have the same results, but different nonces and therefore different hash chains."""
    for path in paths:
        place = copy_of(run, suite / path)
        header = read_run(place).header
        replace(header, nonce=f"of {suite.name}/{path}").write(place)
        rebuild(place)
        sign_run(place)
    write_suite(suite, RecordedSuite(suite.name, paths))
    SuiteAttestation(suite, listed(suite)).sign(KeySigner(KEY))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the signed suites ``all``, ``earlier`` (``all`` without its last run) and ``other``."""
    top = tmp_path_factory.mktemp("made")
    run = make_run(top / "first")
    new_suite(top / "all", run, RUNS)
    earlier = copy_of(top / "all", top / "earlier")
    shutil.rmtree(earlier / THREE)
    write_suite(earlier, RecordedSuite("all", {path: RUNS[path] for path in (ONE, TWO)}))
    SuiteAttestation(earlier, listed(earlier)).sign(KeySigner(KEY))
    new_suite(top / "other", run, RUNS)
    return top


@pytest.fixture
def suite(made: Path, tmp_path: Path) -> Path:
    """Return a copy of the suite ``all`` that may be changed. The suites ``earlier`` and ``other`` are next to it."""
    for name in ("earlier", "other"):
        (tmp_path / name).symlink_to(made / name)
    return copy_of(made / "all", tmp_path / "all")


def verify(suite: Path, key: PrivateKey | None = KEY) -> SuiteReport:
    """Check the suite, by default with the public key of its author."""
    return verify_suite(suite, listed(suite), Evidence(public_key=key.public if key else None))


def rewrite(suite: Path, runs: dict[str, dict[str, str]], suite_id: str = "all") -> None:
    """Replace ``suite.json`` with one that lists ``runs``."""
    write_suite(suite, RecordedSuite(suite_id, runs))


def take(suite: Path, source: str, target: str) -> None:
    """Replace the run at ``target`` with a copy of the run at ``source``. Both paths are relative to the suite."""
    shutil.rmtree(suite / target, ignore_errors=True)
    copy_of(suite / source, suite / target)


def swap(suite: Path, one: str, two: str) -> None:
    """Exchange two files or directories."""
    (suite / one).rename(suite / "aside")
    (suite / two).rename(suite / one)
    (suite / "aside").rename(suite / two)


def _left_out(suite: Path) -> None:
    shutil.rmtree(suite / TWO)
    rewrite(suite, {path: RUNS[path] for path in (ONE, THREE)})


def _left_out_of_the_list(suite: Path) -> None:
    rewrite(suite, {path: RUNS[path] for path in (ONE, THREE)})


def _removed(suite: Path) -> None:
    shutil.rmtree(suite / TWO)


def _header_removed(suite: Path) -> None:
    (suite / TWO / HEADER).unlink()


def _swapped(suite: Path) -> None:
    swap(suite, ONE, TWO)


def _names_swapped(suite: Path) -> None:
    rewrite(suite, {**RUNS, ONE: RUNS[TWO], TWO: RUNS[ONE]})


def _replaced_by_a_signed_run(suite: Path) -> None:
    take(suite, f"../other/{ONE}", ONE)


def _replaced_by_its_neighbour(suite: Path) -> None:
    take(suite, ONE, TWO)


def _duplicated(suite: Path) -> None:
    take(suite, ONE, "pack/four")
    rewrite(suite, {**RUNS, "pack/four": RUNS[ONE]})


def _renamed(suite: Path) -> None:
    (suite / TWO).rename(suite / "pack/best")
    rewrite(suite, {ONE: RUNS[ONE], "pack/best": RUNS[TWO], THREE: RUNS[THREE]})


def _renamed_on_disk(suite: Path) -> None:
    (suite / TWO).rename(suite / "pack/best")


def _reordered(suite: Path) -> None:
    rewrite(suite, dict(reversed(RUNS.items())))


def _other_id(suite: Path) -> None:
    rewrite(suite, RUNS, "everything")


def _signature_of_another_suite(suite: Path) -> None:
    shutil.copy(suite / "../other" / SIGNATURE, suite / SIGNATURE)


def _list_and_signature_of_another_suite(suite: Path) -> None:
    for name in (SUITE, SIGNATURE):
        shutil.copy(suite / "../other" / name, suite / name)


def _earlier_signature(suite: Path) -> None:
    shutil.copy(suite / "../earlier" / SIGNATURE, suite / SIGNATURE)


def _earlier_list_with_all_runs_signed(suite: Path) -> None:
    shutil.copy(suite / "../earlier" / SUITE, suite / SUITE)


def _signature_of_a_run(suite: Path) -> None:
    shutil.copy(suite / ONE / "run.dsse.json", suite / SIGNATURE)


def _no_signature(suite: Path) -> None:
    (suite / SIGNATURE).unlink()


def _signature_is_a_link(suite: Path) -> None:
    (suite / SIGNATURE).rename(suite / "signature")
    (suite / SIGNATURE).symlink_to("signature")


def _signed_with_another_key(suite: Path) -> None:
    _left_out(suite)
    sign_anyway(suite, OTHER)


def _signed_with_another_key_in_the_name_of_this(suite: Path) -> None:
    _signed_with_another_key(suite)
    content = json.loads((suite / SIGNATURE).read_bytes())
    content["signatures"][0]["keyid"] = KEY.public.id
    (suite / SIGNATURE).write_text(json.dumps(content))


def _payload_replaced(suite: Path) -> None:
    signature = (suite / SIGNATURE).read_bytes()
    _signed_with_another_key(suite)
    content = json.loads((suite / SIGNATURE).read_bytes())
    content["signatures"] = json.loads(signature)["signatures"]
    (suite / SIGNATURE).write_text(json.dumps(content))


def _unsigned_run_added(suite: Path) -> None:
    take(suite, ONE, "pack/four")
    (suite / "pack/four/run.dsse.json").unlink()
    rewrite(suite, {**RUNS, "pack/four": {}})


def _signed_run_added(suite: Path) -> None:
    take(suite, f"../other/{ONE}", "pack/four")
    rewrite(suite, {**RUNS, "pack/four": {}})


def _missing_run_added(suite: Path) -> None:
    rewrite(suite, {**RUNS, "pack/four": {}})


def _run_rebuilt(suite: Path) -> None:
    rebuild(suite / ONE, list.reverse)


def _run_signed_with_another_key(suite: Path) -> None:
    rebuild(suite / ONE, list.reverse)
    sign_run(suite / ONE, OTHER)


def _run_and_suite_signed_with_another_key(suite: Path) -> None:
    _run_signed_with_another_key(suite)
    sign_anyway(suite, OTHER)


def _run_with_the_description_of_another(suite: Path) -> None:
    for name in (HEADER, "run.dsse.json"):
        shutil.copy(suite / TWO / name, suite / ONE / name)


def _run_reopened(suite: Path) -> None:
    reopen(suite / ONE)


def _list_formatted(suite: Path) -> None:
    (suite / SUITE).write_text(json.dumps(json.loads((suite / SUITE).read_bytes())))


def _line_endings(suite: Path) -> None:
    (suite / SUITE).write_bytes((suite / SUITE).read_bytes().replace(b"\n", b"\r\n"))


def _path_written_otherwise(suite: Path) -> None:
    (suite / SUITE).write_bytes((suite / SUITE).read_bytes().replace(b'"pack/two"', b'"pack/./two"'))


def _path_with_half_a_character(suite: Path) -> None:
    (suite / SUITE).write_bytes((suite / SUITE).read_bytes().replace(b'"pack/two"', b'"pack/\\ud800"'))


def _path_too_long(suite: Path) -> None:
    (suite / SUITE).write_bytes((suite / SUITE).read_bytes().replace(b'"pack/two"', b'"pack/%s"' % (b"x" * 256)))


def _run_is_a_link(suite: Path) -> None:
    (suite / TWO).rename(suite / "elsewhere")
    (suite / TWO).symlink_to("../elsewhere")


def _list_removed(suite: Path) -> None:
    (suite / SUITE).unlink()


def _run_beside_the_list(suite: Path) -> None:
    for path in (suite / ONE).iterdir():
        copy = shutil.copytree if path.is_dir() else shutil.copy
        copy(path, suite / path.name)


REFUSED: Final[tuple[Callable[[Path], None], ...]] = (
    _left_out,
    _left_out_of_the_list,
    _removed,
    _header_removed,
    _swapped,
    _names_swapped,
    _replaced_by_a_signed_run,
    _replaced_by_its_neighbour,
    _duplicated,
    _renamed,
    _renamed_on_disk,
    _reordered,
    _other_id,
    _signature_of_another_suite,
    _list_and_signature_of_another_suite,
    _earlier_signature,
    _earlier_list_with_all_runs_signed,
    _signature_of_a_run,
    _no_signature,
    _signature_is_a_link,
    _signed_with_another_key,
    _signed_with_another_key_in_the_name_of_this,
    _payload_replaced,
    _unsigned_run_added,
    _signed_run_added,
    _missing_run_added,
    _run_rebuilt,
    _run_signed_with_another_key,
    _run_and_suite_signed_with_another_key,
    _run_with_the_description_of_another,
    _run_reopened,
)
UNREADABLE: Final[tuple[Callable[[Path], None], ...]] = (
    _list_formatted,
    _line_endings,
    _path_written_otherwise,
    _path_with_half_a_character,
    _path_too_long,
    _run_is_a_link,
    _list_removed,
    _run_beside_the_list,
)


def test_a_signed_suite_is_right(suite: Path, tmp_path: Path) -> None:
    """A signed suite passes as a directory and as a bundle.

    If no key is given, the signature is not checked. The suite is only compared with the signed statement.
    """
    report = verify(suite)
    assert (report.exit_code, report.signed_by) == (0, f"key {KEY.public.fingerprint}")
    alone = verify(suite, None)
    assert (alone.exit_code, alone.signed_by, alone.checks[0].state.value) == (0, "", "not checked")
    assert KEY.public.id in alone.checks[0].summary
    (tmp_path / "key.pub").write_text(KEY.public.pem)
    bundle = io.BytesIO()
    assert write_bundle(suite, bundle).runs == len(RUNS)
    (tmp_path / "all.tar").write_bytes(bundle.getvalue())
    done = CliRunner().invoke(cli, ["verify-run", str(tmp_path / "all.tar"), "--key", str(tmp_path / "key.pub")])
    assert done.exit_code == 0, done.output
    assert f"ok\tsuite signature\tthe suite is signed by key {KEY.public.fingerprint}" in done.stdout


@pytest.mark.parametrize("edit", REFUSED, ids=lambda edit: edit.__name__[1:])
def test_a_forger_is_refused(edit: Callable[[Path], None], suite: Path) -> None:
    """The check of the suite itself fails after a change by a forger, even if the checks of its runs pass."""
    edit(suite)
    report = verify(suite)
    assert report.checks[0].found
    assert report.signed_by == ""
    assert report.exit_code in {kind for kind in CheckKind if kind <= CheckKind.SIGNATURE}


@pytest.mark.parametrize("edit", UNREADABLE, ids=lambda edit: edit.__name__[1:])
def test_what_is_not_a_suite_is_an_error(edit: Callable[[Path], None], suite: Path, tmp_path: Path) -> None:
    """A directory that is not a valid suite is refused with a :class:`ConfigError`."""
    edit(suite)
    (tmp_path / "key.pub").write_text(KEY.public.pem)
    done = CliRunner().invoke(cli, ["verify-run", str(suite), "--key", str(tmp_path / "key.pub")])
    assert isinstance(done.exception, ConfigError), done.output


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (_no_signature, "suite.dsse.json: the suite lacks this signature file"),
        (_signed_with_another_key, "the content was not signed with this key"),
        (_removed, "pack/two/run.json' was signed, but is missing"),
        (_left_out_of_the_list, "suite.json is not the file that was signed"),
        (_swapped, "pack/one/run.json is not the file that was signed"),
        (_earlier_signature, "suite.json is not the file that was signed"),
        (_signature_of_a_run, "'run.json' was signed, but is missing"),
        (_run_reopened, "pack/one/run.json is not the file that was signed"),
    ],
)
def test_the_failure_is_named(edit: Callable[[Path], None], message: str, suite: Path) -> None:
    """The problem says that the signature is missing or was made with another key.

    Otherwise it names the signed file that is missing or was changed.
    """
    edit(suite)
    (problem,) = verify(suite).checks[0].problems
    assert message in str(problem)


def test_a_converted_line_ending_is_named(suite: Path) -> None:
    """If the line endings of a file of a suite or run were converted to CRLF, the error states this as the cause.

    Git converts them in files that it takes for text.
    """
    _line_endings(suite)
    with pytest.raises(ConfigError, match="line endings were converted to CRLF"):
        read_suite(suite)
    for name in (HEADER, "candidates.jsonl"):
        run = copy_of(suite / ONE, suite / f"of {name}")
        (run / name).write_bytes((run / name).read_bytes().replace(b"\n", b"\r\n"))
        with pytest.raises(ConfigError, match="line endings were converted to CRLF"):
            list(read_run(run).records())


def test_a_suite_is_signed_only_with_the_key_of_its_runs(suite: Path) -> None:
    """A suite is signed only if each started run is closed and was signed with the same key.

    For a run that was not started, the statement has the path of the run, but no file.
    """
    with pytest.raises(ConfigError, match="not signed with this key"):
        SuiteAttestation(suite, listed(suite)).sign(KeySigner(OTHER))
    rewrite(suite, {**RUNS, "pack/four": {}})
    attestation = SuiteAttestation(suite, listed(suite))
    attestation.sign(KeySigner(KEY))
    assert verify(suite).exit_code == CheckKind.CLOSED
    statement = attestation.statement()
    assert list(statement.subjects) == [SUITE, *(f"{path}/{HEADER}" for path in RUNS)]
    assert statement.predicate["result"] == "FAILED"
    assert statement.predicate["warnedTests"] == ["pack/four"]
    reopen(suite / ONE)
    with pytest.raises(ConfigError, match="is not closed"):
        attestation.sign(KeySigner(KEY))


def test_a_bundle_does_not_name_the_temporary_directory(suite: Path, tmp_path: Path) -> None:
    """An error about a file in a bundle names the bundle and the path of the file in it."""
    _list_formatted(suite)
    shutil.make_archive(str(tmp_path / "all"), "tar", tmp_path, "all")
    done = CliRunner().invoke(cli, ["verify-run", str(tmp_path / "all.tar")])
    assert isinstance(done.exception, ConfigError)
    assert done.exception.problems[0].message.startswith(f"{tmp_path}/all.tar: all/suite.json is damaged")
