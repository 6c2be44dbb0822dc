"""Bundles of runs and suites: their content, their reproducible bytes, and what is refused."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from securebench.errors import ConfigError
from securebench.results.bundle import write_bundle
from securebench.results.read import read_run
from securebench.results.records.record import VerificationStatus, candidate_fields
from securebench.results.run_directory.lock import RunLock
from securebench.results.suite import RecordedSuite, write_suite
from synthetic_run import SyntheticJournal, header, record, sealed_text, trajectory, write_run

if TYPE_CHECKING:
    from collections.abc import Iterator

PRIVATE = ("commitment.key", "owner.json", "source.json", "agent-trace.log", "running.json", "candidates.jsonl.torn-1")


def make_run(directory: Path) -> Path:
    """Write a run with every kind of file that a run directory may contain, and return its directory."""
    answer = sealed_text(directory, "Answer: 42\n")
    records = [
        record(0, candidate=answer, provenance=trajectory(directory, "t", {"step": 1})),
        record(1, candidate=sealed_text(directory, "other")),
        record(2, VerificationStatus.ERROR, candidate=candidate_fields(None, None)),
    ]
    write_run(directory, records, header(4))
    with SyntheticJournal(directory) as journal:
        journal.supersede({records[2].id})
        journal.append(record(2, candidate=answer, provenance={"attempt": 2}))
    for name in PRIVATE:
        (directory / name).write_text("private")
    for name in ("egress", "egress-41"):  # the second is from a worker in another process
        (directory / f"{name}.jsonl").write_text("{}\n")
    (directory / "run.dsse.json").write_text("{}\n")
    for name in ("workspaces", "scratch", "agent", "verifier-output"):
        (directory / name).mkdir()
        (directory / name / "file").write_text("private")
    (directory / "candidates" / ".sealing-left").write_text("private")
    (directory / "candidates" / ("0" * 64)).write_text("of a try that no record names")
    (directory / "trajectories" / "other.jsonl").write_text("private")
    return directory


def bundle(directory: Path) -> bytes:
    """Return the bundle of a run."""
    output = io.BytesIO()
    write_bundle(directory, output)
    return output.getvalue()


def names(data: bytes) -> list[str]:
    """Return the names of the members of a bundle."""
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return archive.getnames()


def test_a_bundle_has_what_a_reader_needs_and_nothing_private(tmp_path: Path) -> None:
    """A bundle has the records, the files that they name, egress logs and the signature, and no private file."""
    directory = make_run(tmp_path / "run")
    found = sorted(names(bundle(directory)))
    candidates = sorted(path.name for path in (directory / "candidates").iterdir() if path.name[0] not in ".0")
    trajectories = [path.name for path in (directory / "trajectories").iterdir() if path.name != "other.jsonl"]
    assert len(candidates) == 2
    assert len(trajectories) == 1
    assert found == sorted(
        [
            "synthetic",
            *(f"synthetic/{name}" for name in ("candidates", "trajectories")),
            *(f"synthetic/{name}.jsonl" for name in ("candidates", "superseded", "egress", "egress-41")),
            *(f"synthetic/{name}" for name in ("run.json", "run.dsse.json")),
            *(f"synthetic/candidates/{name}" for name in candidates),
            *(f"synthetic/trajectories/{name}" for name in trajectories),
        ]
    )
    assert b"private" not in bundle(directory)


def test_two_bundles_of_a_run_are_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes of a bundle do not depend on modes, times, the order of files on disk or the directory's name."""
    directory = make_run(tmp_path / "run")
    first = bundle(directory)
    for path in (directory, *directory.rglob("*")):
        os.utime(path, (time.time() - 1000, 1))
        path.chmod(0o700)
    moved = directory.rename(tmp_path / "elsewhere")
    copy = subprocess.run(["cp", "-r", str(moved), str(tmp_path / "copy")], check=False)
    assert copy.returncode == 0
    assert bundle(moved) == bundle(tmp_path / "copy") == first
    for reverse in (False, True):
        monkeypatch.setattr(Path, "iterdir", lambda path, order=reverse: _listed(path, reverse=order))
        assert bundle(moved) == first


def _listed(directory: Path, *, reverse: bool) -> Iterator[Path]:
    return (directory / name for name in sorted(os.listdir(directory), reverse=reverse))  # noqa: PTH208


def test_tar_unpacks_a_bundle_to_a_run_that_can_be_read(tmp_path: Path) -> None:
    """An unpacked bundle has the records and candidates of the run. Files have mode 0644, and directories 0755."""
    directory = make_run(tmp_path / "run")
    (tmp_path / "bundle.tar").write_bytes(bundle(directory))
    (tmp_path / "unpacked").mkdir()
    subprocess.run(
        ["tar", "-x", "--same-permissions", "-f", "../bundle.tar"], cwd=tmp_path / "unpacked", check=True, umask=0o077
    )
    run = read_run(tmp_path / "unpacked" / "synthetic")
    assert [one.raw for one in run.records()] == [one.raw for one in read_run(directory).records()]
    assert [run.candidate(one).text for one in run.records()] == ["Answer: 42\n", "other", "Answer: 42\n"]
    assert {path.stat().st_mode & 0o7777 for path in run.directory.rglob("*") if path.is_file()} == {0o644}
    assert {path.stat().st_mode & 0o7777 for path in run.directory.rglob("*") if path.is_dir()} == {0o755}


def test_a_run_in_progress_is_refused(tmp_path: Path) -> None:
    """A run in progress is not bundled: its files could contradict each other."""
    directory = make_run(tmp_path / "run")
    with RunLock(directory), pytest.raises(ConfigError) as caught:
        bundle(directory)
    assert caught.value.code == "run-active"


def test_no_run_begins_to_write_while_a_bundle_is_written(tmp_path: Path) -> None:
    """The run directory is locked until the whole bundle is written."""
    directory = make_run(tmp_path / "run")

    class Output(io.BytesIO):
        def write(self, data: object) -> int:
            with pytest.raises(ConfigError, match="another process is using"), RunLock(directory):
                pass
            return super().write(data)  # type: ignore[arg-type]

    write_bundle(directory, Output())


@pytest.mark.parametrize("name", ["run.json", "candidates.jsonl", "egress.jsonl", "run.dsse.json", "candidates/*"])
@pytest.mark.parametrize("kind", ["link", "fifo", "directory"])
def test_links_and_special_files_are_refused(tmp_path: Path, name: str, kind: str) -> None:
    """Only regular files are bundled: a link could lead to any file of the machine, and a FIFO would block."""
    directory = make_run(tmp_path / "run")
    found = next(path for path in directory.glob(name) if path.name[0] not in ".0")
    moved = found.rename(tmp_path / "moved")
    if kind == "link":
        found.symlink_to(moved)
    elif kind == "fifo":
        os.mkfifo(found)
    else:
        found.mkdir()
    with pytest.raises(ConfigError) as caught:
        bundle(directory)
    assert caught.value.code == "file-not-regular"


def test_candidates_behind_a_link_are_refused(tmp_path: Path) -> None:
    """A run is not bundled if its directory of candidates is a symbolic link."""
    directory = make_run(tmp_path / "run")
    (directory / "candidates").rename(tmp_path / "candidates")
    (directory / "candidates").symlink_to(tmp_path / "candidates")
    with pytest.raises(ConfigError) as caught:
        bundle(directory)
    assert caught.value.code == "file-not-regular"


def test_a_missing_candidate_is_named(tmp_path: Path) -> None:
    """A run that lacks a sealed candidate is not bundled. Trajectories may be missing: their owner may remove them."""
    directory = make_run(tmp_path / "run")
    for path in (directory / "trajectories").iterdir():
        path.unlink()
    assert "synthetic/trajectories" not in names(bundle(directory))
    next(path for path in (directory / "candidates").iterdir() if path.name[0] not in ".0").unlink()
    with pytest.raises(ConfigError, match="candidate is missing") as caught:
        bundle(directory)
    assert caught.value.code == "candidate-not-stored"


@pytest.mark.parametrize(
    ("run_id", "safe"), [("../..//a\nb", "a-b"), ("/etc", "etc"), ("..", "run"), ("x" * 100, "x" * 80)]
)
def test_the_directory_in_a_bundle_has_a_safe_name(tmp_path: Path, run_id: str, safe: str) -> None:
    """A run id that a stranger chose cannot lead out of the directory in which a bundle is unpacked."""
    write_run(tmp_path / "run", [], header(1, run_id=run_id))
    assert {name.partition("/")[0] for name in names(bundle(tmp_path / "run"))} == {safe}


def test_a_suite_is_bundled_with_its_runs(tmp_path: Path) -> None:
    """The bundle of a suite has the runs that were started, at their paths, and not the suite's key."""
    suite = tmp_path / "suite"
    make_run(suite / "pack" / "one")
    write_suite(suite, RecordedSuite("all", {"pack/one": {}, "pack/two": {}}))
    (suite / "commitment.key").write_text("private")
    (suite / "suite.dsse.json").write_text("{}\n")
    data = bundle(suite)
    assert {"all/suite.json", "all/suite.dsse.json", "all/pack/one/run.json", "all/pack/one/candidates.jsonl"} <= set(
        names(data)
    )
    assert b"private" not in data
    output = io.BytesIO()
    bundled = write_bundle(suite, output)
    assert (bundled.runs, bundled.candidates) == (1, 2)
