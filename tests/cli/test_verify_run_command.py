"""``securebench verify-run``."""

from __future__ import annotations

import errno
import io
import json
import tarfile
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from audit.run.made_runs import copy_of, edit_lines, make_run
from securebench.cli import cli
from securebench.errors import ConfigError, StorageError
from securebench.fs.zstd import zstd
from securebench.results.attestation import RunAttestation
from securebench.results.bundle import write_bundle
from securebench.results.read import read_run
from securebench.results.records.commitment import KEY_FILE
from securebench.results.suite import RecordedSuite, write_suite
from securebench.signing.key_files import create_key, load_signer
from securebench.signing.signers import KeySigner

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.testing import Result


def verify_run(*arguments: object) -> Result:
    """Run the command."""
    return CliRunner().invoke(cli, ["verify-run", *map(str, arguments)])


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a finished run, next to its pack."""
    return make_run(tmp_path_factory.mktemp("made") / "run")


@pytest.fixture
def run(original: Path, tmp_path: Path) -> Path:
    """Return a copy of the run."""
    return copy_of(original, tmp_path / "results")


def states(done: Result) -> dict[str, str]:
    """Return the state of each check in plain output."""
    return {parts[1]: parts[0] for line in done.stdout.splitlines() if len(parts := line.split("\t")) == 3}


def test_each_check_has_a_line_and_an_unsigned_run_is_called_one(run: Path) -> None:
    """Each check of an unsigned run has a line. The last line says that its author is not verified."""
    done = verify_run(run)
    assert done.exit_code == 0, done.output
    assert states(done) == {
        **dict.fromkeys(("header", "records", "chain", "root", "counts", "files"), "ok"),
        **dict.fromkeys(("candidates", "candidate records", "trajectories", "content"), "ok"),
        **dict.fromkeys(("pack", "signature"), "not checked"),
        **dict.fromkeys(("closed", "format"), "ok"),
    }
    assert (
        "chain\t7 records, each with the hash of the record before it; no record before the last one is missing"
        in done.stdout
    )
    assert "This does not show who made the run" in done.stdout.splitlines()[-1]


def test_problems_are_listed_below_their_check(run: Path) -> None:
    """A problem in a record is listed below its check with file and line, and sets the exit code."""
    edit_lines(run, lambda records: records[0].update(score=9.5))
    done = verify_run(run)
    assert done.exit_code == 10
    lines = done.stdout.splitlines()
    at = lines.index("FAILED\trecords\t1 problem")
    assert lines[at + 1].startswith("    candidates.jsonl:1: ")
    assert lines[-1] == "Do not use this run as evidence."


def test_everything_that_is_given_is_checked(run: Path, original: Path, tmp_path: Path) -> None:
    """The pack, its hidden content and the signature are checked if the options for them are given."""
    create_key(tmp_path / "key")
    key = load_signer(tmp_path / "key", bytes)
    RunAttestation(read_run(run)).sign(KeySigner(key))
    (run / KEY_FILE).rename(tmp_path / "commitment")
    done = verify_run(run, "--pack", original.parent / "pack", "--key", tmp_path / "key.pub")
    assert done.exit_code == 0, done.output
    assert "public content of pack; comparing hidden content needs the run's commitment key" in done.stdout
    last_line = done.stdout.splitlines()[-1]
    assert last_line == f"Nothing was changed or removed since key {key.public.fingerprint} signed the run."
    options = ("--pack", original.parent / "pack", "--commitment-key", tmp_path / "commitment")
    assert "public and hidden content" in verify_run(run, *options).stdout
    create_key(tmp_path / "other")
    assert verify_run(run, "--key", tmp_path / "other.pub").exit_code == 16


def test_the_report_for_programs(run: Path) -> None:
    """``--json`` prints only JSON to standard output: ids, checks, problems and the exit code."""
    report = json.loads(verify_run(run, "--json").stdout)
    assert {name: report[name] for name in ("run_id", "benchmark_id", "exit_code", "signed_by")} == {
        "run_id": "run",
        "benchmark_id": "pack",
        "exit_code": 0,
        "signed_by": None,
    }
    assert [check["name"] for check in report["checks"]][:3] == ["header", "records", "chain"]
    edit_lines(run, lambda records: records[0].update(score=9.5))
    done = verify_run(run, "--json")
    assert done.exit_code == json.loads(done.stdout)["exit_code"] == 10
    (failed,) = [check for check in json.loads(done.stdout)["checks"] if check["name"] == "records"]
    assert (failed["kind"], failed["state"], failed["problem_count"]) == ("bytes", "FAILED", 1)
    assert (failed["problems"][0]["file"], failed["problems"][0]["line"]) == ("candidates.jsonl", 1)


def test_a_suite_is_checked_run_by_run(run: Path, original: Path, tmp_path: Path) -> None:
    """The exit code of a suite is the smallest of its failed runs. A pack is compared only with runs of that pack."""
    suite = tmp_path / "suite"
    copy_of(run, suite / "pack" / "one")
    edit_lines(copy_of(run, suite / "pack" / "two"), list.reverse)
    write_suite(suite, RecordedSuite("all", {"pack/one": {}, "pack/two": {}, "pack/three": {}}))
    done = verify_run(suite, "--pack", original.parent / "pack")
    assert done.exit_code == 11
    paths = ["pack/one", "pack/two", "pack/three"]
    assert [line for line in done.stdout.splitlines() if line.startswith("pack/")] == paths
    assert "not checked\tsuite signature\tthe suite is not signed" in done.stdout
    report = json.loads(verify_run(suite, "--json").stdout)
    assert [(one["path"], one["exit_code"]) for one in report["runs"]] == list(zip(paths, (0, 11, 17), strict=True))
    assert report["exit_code"] == 11
    write_suite(suite, RecordedSuite("all", {"pack/one": {}}))
    manifest = copy_of(original.parent / "pack", tmp_path / "other") / "manifest.yaml"
    manifest.write_text("id: other\nversion: 1\n")
    assert verify_run(suite, "--pack", tmp_path / "other").exit_code == 0


def test_a_run_and_a_suite_in_an_older_format_have_the_same_conclusion(tmp_path: Path) -> None:
    """A run or suite in an older format is said to be not verifiable. The exit code is 18."""
    old = Path(__file__).parents[1] / "results" / "version_3_run"
    copy_of(old, tmp_path / "pack" / "one")
    write_suite(tmp_path, RecordedSuite("all", {"pack/one": {}}))
    for directory, what in ((old, "run"), (tmp_path, "suite")):
        done = verify_run(directory)
        assert done.exit_code == 18
        assert done.stdout.splitlines()[-1] == f"The {what} cannot be verified: it has files in an older format."


@pytest.mark.parametrize("runs", [{}, {"pack/one": {}}])
def test_a_run_does_not_become_an_empty_suite(run: Path, runs: dict[str, dict[str, str]]) -> None:
    """A run with an added suite file is refused. Otherwise its own files would not be checked."""
    edit_lines(run, lambda records: records[0].update(score=9.5))
    write_suite(run, RecordedSuite("none", runs))
    done = verify_run(run)
    assert isinstance(done.exception, ConfigError), done.output
    assert done.exception.code == "suite-damaged"


def test_a_suite_without_runs_shows_nothing(tmp_path: Path) -> None:
    """For a suite without runs, the exit code is 1. For a suite with a missing run, it is 17."""
    write_suite(tmp_path, RecordedSuite("none", {}))
    assert verify_run(tmp_path).exit_code == 1
    write_suite(tmp_path, RecordedSuite("none", {"pack/one": {}}))
    assert verify_run(tmp_path).exit_code == 17


@pytest.mark.parametrize(
    "options",
    [("--tasks", "x"), ("--commitment-key", "x"), ("--identity", "me"), ("--issuer", "https://issuer.example")],
)
def test_options_that_need_each_other(run: Path, options: tuple[str, str]) -> None:
    """An option without the option that it needs is wrong usage. The exit code is 2, which no failed check gives."""
    assert verify_run(run, *options).exit_code == 2


def test_what_is_no_run_is_an_error(tmp_path: Path, run: Path) -> None:
    """A path that is no run, and an option that names an unusable pack or key, raise ``ConfigError``."""
    for arguments in ((tmp_path / "none",), (tmp_path,), (run, "--pack", tmp_path), (run, "--key", tmp_path / "none")):
        done = verify_run(*arguments)
        assert isinstance(done.exception, ConfigError), done.output


def test_control_characters_in_a_run_are_escaped(run: Path) -> None:
    """Control characters in the records of a run do not reach the terminal."""
    edit_lines(run, lambda records: records[0].update(run_id="\x1b[2J\x1b]0;title\x07", task_id="\u202e\n\r"))
    done = verify_run(run)
    assert done.exit_code != 0
    assert not {"\x1b", "\x07", "\r", "\u202e"} & set(done.stdout)


def _archive(*members: tuple[str, bytes | None, dict[str, object]]) -> bytes:
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w") as archive:
        for name, data, fields in members:
            member = tarfile.TarInfo(name)
            member.type = tarfile.REGTYPE if data is not None else tarfile.DIRTYPE
            member.size = len(data or b"")
            for field, value in fields.items():
                setattr(member, field, value)
            archive.addfile(member, io.BytesIO(data or b""))
    return output.getvalue()


EVIL = Path(tempfile.gettempdir()) / f"evil-{uuid.uuid4().hex}"
HOSTILE: dict[str, bytes] = {
    "nothing": b"",
    "no archive": b"x" * 100_000,
    "an empty archive": _archive(),
    "a path upwards": _archive(("run", None, {}), ("run/../../evil", b"x", {})),
    "an absolute path": _archive((str(EVIL), b"x", {})),
    "a link": _archive(("run", None, {}), ("run/run.json", None, {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"})),
    "a hard link": _archive(("run", None, {}), ("run/a", None, {"type": tarfile.LNKTYPE, "linkname": "/etc/passwd"})),
    "a FIFO": _archive(("run", None, {}), ("run/run.json", None, {"type": tarfile.FIFOTYPE})),
    "a device": _archive(("run", None, {}), ("run/run.json", None, {"type": tarfile.CHRTYPE})),
    "a file twice": _archive(("run", None, {}), ("run/run.json", b"{}", {}), ("run/run.json", b"", {})),
    "a file in a file": _archive(("run", b"", {}), ("run/run.json", b"{}", {})),
    "no directory": _archive(("run/run.json", b"{}", {})),
    "two directories": _archive(("one", None, {}), ("two", None, {})),
    "a deep path": _archive(("/".join("abcdefghij"), b"x", {})),
    "a strange name": _archive(("run", None, {}), ("run/\x1b[2J", b"x", {})),
    "cut off": _archive(("run", None, {}), ("run/run.json", b"{}" * 1000, {}))[:1500],
}


@pytest.mark.parametrize("pack", [bytes, zstd.compress], ids=["tar", "zstd"])
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_bundle_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, pack: Callable[[bytes], bytes]
) -> None:
    """A damaged or hostile bundle is refused.

    No unpacked file is left in the temporary directory, next to the bundle, or at an absolute path in the bundle.
    """
    (tmp_path / "bundle.tar.zst").write_bytes(pack(HOSTILE[name]))
    (tmp_path / "unpacked").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "unpacked"))
    done = verify_run(tmp_path / "bundle.tar.zst")
    assert isinstance(done.exception, ConfigError), done.output
    assert done.exception.code == "bundle-damaged"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["bundle.tar.zst", "unpacked"]
    assert not EVIL.exists()


def _other_bytes(data: bytes) -> dict[str, bytes]:
    """Return altered versions of the bundle ``data``. Some programs would unpack them without an error."""
    members: list[tuple[str, bytes | None, dict[str, object]]] = []
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for member in archive:
            content = archive.extractfile(member)
            members.append((member.name, content.read() if content else None, {}))
    top = members[0][0]
    return {
        "written by another program": _archive(*members),
        "in another order": _archive(members[0], *reversed(members[1:])),
        "a second archive behind it": data + _archive((f"{top}/run.json", b"{}", {})),
        "a byte behind it": data + b"x",
        "less padding": data[:-512],
        "a file more": _archive(*members, (f"{top}/RUN.JSON", b"{}", {})),
        "a key": _archive(*members, (f"{top}/commitment.key", b"x", {})),
        "a PAX header": _archive(*members[:2], (members[2][0], members[2][1], {"pax_headers": {"path": f"{top}/x"}})),
    }


def test_a_bundle_must_be_what_bundle_writes(run: Path, tmp_path: Path) -> None:
    """An archive is refused if it differs from what ``securebench bundle`` writes for the same files.

    Programs read unusual archives in different ways, so another program could unpack files that were not checked.
    """
    output = io.BytesIO()
    write_bundle(run, output)
    path = tmp_path / "bundle.tar"
    for compress in (bytes, zstd.compress):
        path.write_bytes(compress(output.getvalue()))
        assert verify_run(path).exit_code == 0
        for name, data in _other_bytes(output.getvalue()).items():
            path.write_bytes(compress(data))
            done = verify_run(path)
            assert done.exit_code != 0, name
            assert "All files agree" not in done.stdout, name


def test_a_decompression_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bundle whose decompressed size exceeds the limit for archives is refused."""
    from securebench.audit.run import bundle_file
    from securebench.fs.archives import ArchiveLimits

    monkeypatch.setattr(bundle_file, "_LIMITS", ArchiveLimits(bytes=100_000))
    data = _archive(("run", None, {}), ("run/run.json", bytes(1_000_000), {}))
    (tmp_path / "bundle.tar.zst").write_bytes(zstd.compress(data))
    done = verify_run(tmp_path / "bundle.tar.zst")
    assert isinstance(done.exception, ConfigError)
    assert done.exception.code == "bundle-damaged"


def test_a_full_disk_is_not_a_damaged_bundle(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the disk is full, the error is ``storage-failed``, and its hint is to free space."""
    from securebench.audit.run import bundle_file

    def full(*_: object) -> set[str]:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(bundle_file, "_unpack", full)
    with (tmp_path / "bundle.tar").open("wb") as output:
        write_bundle(run, output)
    done = verify_run(tmp_path / "bundle.tar")
    assert isinstance(done.exception, StorageError)
    assert done.exception.code == "storage-failed"
    assert done.exception.hint.startswith("free some space, or set TMPDIR")
