"""Hostile run directories: ``verify-run`` does not block, follows no link, and limits its time and its report."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from audit.run.made_runs import copy_of, failed, make_run, rebuild, verify
from bounds import processor_seconds
from securebench.audit.run.report import MAX_PROBLEMS
from securebench.results.run_directory.lock import RunLock
from synthetic_run import records, reopen, sealed_text, write_run

if TYPE_CHECKING:
    from collections.abc import Callable

GIB = 1 << 30
TIB = 1 << 40


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a finished run."""
    return make_run(tmp_path_factory.mktemp("made") / "run")


@pytest.fixture
def run(original: Path, tmp_path: Path) -> Path:
    """Return a copy of the run that may be changed."""
    return copy_of(original, tmp_path / "run")


def _first_candidate(run: Path) -> Path:
    return next((run / "candidates").iterdir())


@pytest.mark.parametrize("kind", ["link", "fifo", "directory", "missing"])
@pytest.mark.parametrize(
    ("name", "code"), [("run.json", 10), ("candidates.jsonl", 10), ("superseded.jsonl", 10), ("candidates", 13)]
)
def test_only_regular_files_are_read(run: Path, name: str, code: int, kind: str) -> None:
    """It is a problem if a file is missing, or if a FIFO, a directory or a link is in its place.

    This includes a link to the right file. The directory ``candidates`` must not be missing, empty or replaced.
    """
    moved = (run / name).rename(run.parent / "moved")
    if kind == "link":
        (run / name).symlink_to(moved)
    elif kind == "fifo":
        os.mkfifo(run / name)
    elif kind == "directory":
        (run / name).mkdir()
    expected = 11 if kind == "missing" and name.endswith("jsonl") else code
    assert verify(run).exit_code == expected


@pytest.mark.parametrize("size", [GIB, TIB])
@pytest.mark.parametrize("name", ["run.json", "candidates.jsonl", "superseded.jsonl", "egress.jsonl", "candidate"])
def test_sparse_files_cost_no_time(run: Path, name: str, size: int) -> None:
    """A sparse file of up to 1 TiB is refused without being hashed, which would take hours."""
    path = _first_candidate(run) if name == "candidate" else run / name
    path.touch()
    path.chmod(0o600)
    os.truncate(path, size)
    with processor_seconds(20):
        assert verify(run).exit_code != 0


DAMAGED: dict[str, Callable[[], bytes]] = {
    "deep lists": lambda: b"[" * 10_000_000,
    "deep objects": lambda: b'{"a":' * 4_000_000,
    "empty lines": lambda: b"\n" * 20_000_000,
    "many lines that are no records": lambda: b"{}\n" * 5_000_000,
    "one long string": lambda: b'"' + b"a" * 40_000_000 + b'"\n',
    "many escapes": lambda: b'"' + b'\\"' * 20_000_000 + b'"\n',
    "a number of many digits": lambda: b'{"record_version": ' + b"9" * 1_000_000 + b"}\n",
    "no text": lambda: bytes(range(256)) * 10_000,
    "NaN": lambda: b'{"record_version": NaN}\n',
}


@pytest.mark.parametrize("name", DAMAGED)
@pytest.mark.parametrize("file", ["run.json", "candidates.jsonl"])
def test_damaged_files_cost_little_time(run: Path, file: str, name: str) -> None:
    """A damaged file is refused within a limited time, and a check reports at most ``MAX_PROBLEMS`` problems."""
    (run / file).write_bytes(DAMAGED[name]())
    with processor_seconds(20):
        report = verify(run)
    assert report.exit_code == 10
    assert all(len(check.problems) <= MAX_PROBLEMS for check in report.checks)


def test_unknown_candidates_are_not_all_listed(run: Path) -> None:
    """In a directory of very many unknown candidates, only the first 1,000 are counted, and 20 are reported."""
    for number in range(20_000):
        os.close(os.open(run / "candidates" / f"{number:064x}", os.O_CREAT | os.O_WRONLY))
    with processor_seconds(5):
        report = verify(run)
    assert report.exit_code == 13
    check = next(check for check in report.checks if check.name == "candidates")
    assert (len(check.problems), check.found) == (MAX_PROBLEMS, 1000)


def _provenance(**values: Any) -> Callable[[dict[str, Any]], object]:
    return lambda record: record["provenance"].update(values)


def _metadata(**values: Any) -> Callable[[dict[str, Any]], object]:
    return lambda record: record["verifier_metadata"].update(values)


def _trajectory(path: Any) -> Callable[[dict[str, Any]], object]:
    return _provenance(trajectory={"path": path, "sha256": "0" * 64})


STRANGE: dict[str, Callable[[dict[str, Any]], object]] = {
    "lists in place of objects": _provenance(pack=[], harness=[], driver=[], row=[], image=[], verifier=[]),
    "numbers in place of objects": _provenance(pack=1, harness=2, driver=3, row=4, image=5, verifier=6, framework=7),
    "an image of lists": _provenance(image={"reference": ["a"], "id": ["b"]}),
    "an image of objects": _provenance(image={"reference": {}, "id": {}}),
    "a trajectory upwards": _trajectory("trajectories/../run.json"),
    "an absolute trajectory": _trajectory("trajectories//etc/passwd"),
    "a trajectory with a NUL": _trajectory("trajectories/\0"),
    "a trajectory with half a character": _trajectory("trajectories/\ud800"),
    "a trajectory with a long name": _trajectory("trajectories/" + "x" * 5000),
    "strange tries": _provenance(failed_tries=[1, None, {"trajectory": 3}, {"trajectory": {"path": 3}}]),
    "half a character": lambda record: record.update(candidate_text="\ud800"),
    "an id of half a character": lambda record: record.update(task_id="\ud800"),
    "a patch": lambda record: record.update(candidate_text=None, candidate_patch="diff --git a/x b/x\n"),
    "half a character in a patch": lambda record: record.update(candidate_text=None, candidate_patch="\ud800"),
    "a workspace": lambda record: record.update(candidate_text=None, candidate_workspace="../../x"),
    "strange evidence": _metadata(evidence=[]),
    "empty evidence": _metadata(evidence={}),
    "evidence of a list": _metadata(evidence={"kind": []}),
    "isolation of a list": _metadata(isolation=["shared"]),
    "a family like a path": lambda record: record.update(task_type="../../x"),
    "a text for a truth value": lambda record: record.update(candidate_redacted="yes"),
    "many tags": lambda record: record.update(tags=["a"] * 100_000),
    "a digest in upper case": lambda record: record.update(candidate_digest=record["candidate_digest"].upper()),
    "a digest in upper case in a workspace": lambda record: record.update(
        candidate_text=None, candidate_workspace=f"sha256:{record['candidate_digest'].upper()}"
    ),
}


HARMLESS = {
    "a trajectory with half a character",  # a trajectory may be missing
    "strange tries",
    "an id of half a character",  # only the pack knows its ids
    "many tags",
    "strange evidence",
    "isolation of a list",
}
"""Strange values that are not a problem. No check uses them, unless the comment gives another reason."""


@pytest.mark.parametrize("name", STRANGE)
def test_strange_values_are_problems_and_never_internal_errors(run: Path, name: str) -> None:
    """A strange value in a record never leads to an internal error. It is a problem, unless it is in ``HARMLESS``.

    Hash chain and closing are recomputed, so that the value reaches every check.
    """
    rebuild(run, lambda records: STRANGE[name](records[0]))
    report = verify(run)
    assert bool(failed(report)) is (name not in HARMLESS)
    assert bool(report.exit_code) is (name not in HARMLESS)


@pytest.mark.slow
def test_many_records_are_checked_in_seconds(tmp_path: Path) -> None:
    """Verification of a run takes less than a millisecond of processor time per record."""
    run = tmp_path / "run"
    candidate = sealed_text(run, "Answer: 42\n")
    write_run(run, [replace(record, candidate=candidate) for record in records(4000)])
    with processor_seconds(4):
        report = verify(run)
    assert failed(report) == {}
    assert report.exit_code == 0


def test_a_run_in_progress_is_not_closed(run: Path) -> None:
    """A run in progress fails only the check "closed", because its files may not be consistent yet."""
    reopen(run)
    with RunLock(run):
        report = verify(run)
    assert report.exit_code == 17
    assert failed(report) == {"closed": ["run.json: the run is not closed: it is in progress"]}
    assert failed(verify(run))["closed"][0].endswith("was killed; 'securebench run --resume' closes it")


def test_a_file_that_a_killed_run_left_is_no_problem_until_the_run_is_closed(run: Path) -> None:
    """A partly sealed candidate is a problem only in a closed run.

    A run that is not closed has the exit code 17 ("not closed") instead.
    """
    (run / "candidates" / ".sealing-x").write_text("half")
    assert verify(run).exit_code == 13
    reopen(run)
    assert verify(run).exit_code == 17


def test_a_run_of_an_older_format_has_an_exit_code_of_its_own() -> None:
    """A run of format 2 or 3 is checked, but always fails with code 18, because nothing shows that it is complete."""
    for version in (2, 3):
        directory = Path(__file__).parents[2] / "results" / f"version_{version}_run"
        report = verify(directory)
        assert report.exit_code == 18, failed(report)
