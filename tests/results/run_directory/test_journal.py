"""The journal."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from results.samples import HEAD, STATUS, record
from securebench.errors import ConfigError, StorageError
from securebench.results.records.chain import line_hash
from securebench.results.records.identity import RunIdentity
from securebench.results.run_directory.files import JOURNAL, SUPERSEDED
from securebench.results.run_directory.journal import Journal
from securebench.trials import TrialId

if TYPE_CHECKING:
    from collections.abc import Callable

    from securebench.resources import JsonValue

TESTS = Path(__file__).parents[2]


def write(directory: Path, *task_ids: str) -> bytes:
    """Append a record of each task to the journal, and return the bytes of the file."""
    with Journal(directory, HEAD) as journal:
        for task_id in task_ids:
            journal.append(record(task_id))
    return (directory / JOURNAL).read_bytes()


def tasks(directory: Path) -> list[str]:
    """Return the task ids in the journal's file, in order."""
    return [json.loads(line)["task_id"] for line in (directory / JOURNAL).read_bytes().splitlines()]


def test_appends_in_order(tmp_path: Path) -> None:
    """Records are in the order in which they were written. In a reopened journal, their numbers continue (M18)."""
    write(tmp_path, "b", "a")
    write(tmp_path, "c")
    lines = [json.loads(line) for line in (tmp_path / JOURNAL).read_bytes().splitlines()]
    assert [(line["sequence"], line["task_id"]) for line in lines] == [(0, "b"), (1, "a"), (2, "c")]


def test_one_write_then_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record is written as a complete line in one call, and then flushed to disk (L02)."""
    calls: list[tuple[str, bytes]] = []
    real_write, real_sync = os.write, os.fsync

    def write_down(descriptor: int, data: bytes) -> int:
        calls.append(("write", bytes(data)))
        return real_write(descriptor, data)

    def sync_down(descriptor: int) -> None:
        calls.append(("fsync", b""))
        real_sync(descriptor)

    monkeypatch.setattr(os, "write", write_down)
    monkeypatch.setattr(os, "fsync", sync_down)
    with Journal(tmp_path, HEAD) as journal:
        calls.clear()
        journal.append(record())
    assert [name for name, _ in calls] == ["write", "fsync"]
    assert calls[0][1].count(b"\n") == 1
    assert calls[0][1].endswith(b"\n")


def test_the_directory_is_flushed_when_the_journal_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory entry of a new journal is flushed to disk before the first record is written."""
    synced: list[int] = []
    real_sync = os.fsync

    def sync(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_ino)
        real_sync(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    with Journal(tmp_path, HEAD):
        assert tmp_path.stat().st_ino in synced


def test_torn_at_every_byte(tmp_path: Path) -> None:
    """Wherever a journal was cut off, it opens with its complete records, and the rest is moved aside (L02, L03)."""
    whole = write(tmp_path, "a", "b")
    first = whole.index(b"\n") + 1
    for end in range(len(whole) + 1):
        directory = tmp_path / f"cut-{end}"
        directory.mkdir()
        (directory / JOURNAL).write_bytes(whole[:end])
        with Journal(directory, HEAD) as journal:
            kept = [trial.task_id for trial in journal.entries]
        assert kept == _expected(end, first, len(whole))
        assert tasks(directory) == kept
        torn = b"".join(path.read_bytes() for path in directory.glob(f"{JOURNAL}.torn-*"))
        left = (directory / JOURNAL).read_bytes()
        assert left + torn == whole[:end] or (not torn and left == whole[:end] + b"\n")


def _expected(end: int, first: int, length: int) -> list[str]:
    if end >= length - 1:
        return ["a", "b"]
    return ["a"] if end >= first - 1 else []


def test_a_torn_tail_is_moved_aside(tmp_path: Path) -> None:
    """The bytes of each torn record are moved to a new file, and the next record starts a new line (L03)."""
    whole = write(tmp_path, "a")
    for number, tail in enumerate((b'{"record_ver', b"\0\0\0", b'\0\0\0": 1}\n'), start=1):
        with (tmp_path / JOURNAL).open("ab") as file:
            file.write(tail)
        with Journal(tmp_path, HEAD) as journal:
            assert [trial.task_id for trial in journal.entries] == ["a"]
        assert (tmp_path / f"{JOURNAL}.torn-{number}").read_bytes() == tail
        assert (tmp_path / JOURNAL).read_bytes() == whole
    write(tmp_path, "b")
    assert tasks(tmp_path) == ["a", "b"]


def test_a_record_that_lacks_only_its_newline_gets_it(tmp_path: Path) -> None:
    """A last record that lacks only its newline is kept, and the newline is added."""
    whole = write(tmp_path, "a", "b")
    (tmp_path / JOURNAL).write_bytes(whole[:-1])
    with Journal(tmp_path, HEAD) as journal:
        assert [trial.task_id for trial in journal.entries] == ["a", "b"]
    assert (tmp_path / JOURNAL).read_bytes() == whole
    assert not list(tmp_path.glob("*.torn-*"))


@pytest.mark.parametrize(
    ("damage", "line"),
    [
        (lambda lines: [b"{}\n", *lines], 1),
        (lambda lines: [lines[0], b"\n", lines[1]], 2),
        (lambda lines: [lines[0], lines[1][:40] + b"\n"], 2),
        (lambda lines: [lines[0], lines[1].replace(b'"passed": true', b'"passed": false')], 2),
        (lambda lines: [lines[0][:30] + lines[1], lines[1]], 1),
        (lambda lines: [b"\0" * 30 + lines[0][30:], lines[1]], 1),
    ],
    ids=["no record", "blank", "cut, with a newline", "contradiction", "welded", "zeros"],
)
def test_damage_stops_the_run(tmp_path: Path, damage: Callable[[list[bytes]], list[bytes]], line: int) -> None:
    """A damaged line is never repaired: the error names the line, and the file stays unchanged (L02)."""
    whole = b"".join(damage(write(tmp_path, "a", "b").splitlines(keepends=True)))
    (tmp_path / JOURNAL).write_bytes(whole)
    with pytest.raises(ConfigError) as caught:
        Journal(tmp_path, HEAD)
    assert caught.value.code == "journal-damaged"
    assert f"{JOURNAL}:{line}" in str(caught.value)
    assert (tmp_path / JOURNAL).read_bytes() == whole


def test_a_journal_that_is_a_link_is_refused(tmp_path: Path) -> None:
    """A symbolic link in place of the journal is refused, and its target is not changed."""
    target = tmp_path / "elsewhere"
    target.write_text("")
    (tmp_path / JOURNAL).symlink_to(target)
    with pytest.raises(ConfigError):
        Journal(tmp_path, HEAD)
    assert target.read_text() == ""


def test_a_task_has_one_record(tmp_path: Path) -> None:
    """A second record of a task is refused and not written (M04)."""
    with Journal(tmp_path, HEAD) as journal:
        journal.append(record("a"))
        with pytest.raises(ValueError, match="already has a record"):
            journal.append(record("a"))
    assert tasks(tmp_path) == ["a"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS])
@pytest.mark.parametrize("call", ["write", "fsync"])
def test_disk_trouble_leaves_no_half_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, call: str
) -> None:
    """If the disk fails, the error has the reason, and the content of the file stays unchanged (L07)."""
    before = write(tmp_path, "a")
    with Journal(tmp_path, HEAD) as journal:
        with monkeypatch.context() as patch:
            patch.setattr(os, call, _failing(code))
            with pytest.raises(StorageError, match=os.strerror(code)):
                journal.append(record("b"))
        assert (tmp_path / JOURNAL).read_bytes() == before
        assert TrialId("b") not in journal.entries
        journal.append(record("c"))
    assert tasks(tmp_path) == ["a", "c"]


def test_a_partial_write_is_cut_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If only a part of a record is written, this part is removed again (L07)."""
    real_write = os.write
    with Journal(tmp_path, HEAD) as journal:
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", lambda fd, data: real_write(fd, data[:20]))
            with pytest.raises(StorageError):
                journal.append(record("a"))
        assert (tmp_path / JOURNAL).read_bytes() == b""


def test_file_size_limit(tmp_path: Path) -> None:
    """If a record exceeds the kernel's file size limit, a storage error is raised. Complete records stay (L07)."""
    script = f"""
import resource
from pathlib import Path
from results.samples import HEAD, record
from securebench.errors import StorageError
from securebench.results.run_directory.journal import Journal
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
with Journal(Path({str(tmp_path)!r}), HEAD) as journal:
    try:
        for number in range(100):
            journal.append(record(f"task-{{number}}"))
    except StorageError as error:
        print("storage", number)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env={"PYTHONPATH": str(TESTS)}
    )
    word, number = done.stdout.split()
    assert word == "storage"
    assert tasks(tmp_path) == [f"task-{n}" for n in range(int(number))]
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


def _failing(code: int) -> Callable[..., int]:
    def fail(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    return fail


def test_each_trial_has_its_own_record_and_history(tmp_path: Path) -> None:
    """Each trial of a task has its own record, attempts and usage; two records of the same trial are damage."""
    one, two = TrialId("a", 1), TrialId("a", 2)
    with Journal(tmp_path, HEAD) as journal:
        journal.append(record("a", STATUS.ERROR, trial=1))
        journal.append(record("a", STATUS.ERROR, trial=2, provenance={"attempt": 1, "spent": {"input_tokens": 5}}))
        journal.supersede({two})
        assert list(journal.entries) == [one]
        journal.append(record("a", STATUS.ERROR, trial=2, provenance={"attempt": 2, "spent": {"input_tokens": 7}}))
        journal.supersede({two})
        assert (journal.attempts(one), journal.attempts(two)) == (1, 2)
        assert (journal.spent(one).input_tokens, journal.spent(two).input_tokens) == (0, 7)
        last = journal.append(record("a", trial=2, provenance={"attempt": 3}))
    with Journal(tmp_path, HEAD) as journal:
        assert list(journal.entries) == [one, two]
        with pytest.raises(ValueError, match=r"a \(trial 2\)' already has a record"):
            journal.append(record("a", trial=2))
    lines = (tmp_path / JOURNAL).read_bytes()
    previous = line_hash(lines.splitlines()[-1])
    more = record("a", trial=2, provenance={"attempt": 4}).line(last.sequence + 1, previous)
    (tmp_path / JOURNAL).write_bytes(lines + more)
    with pytest.raises(ConfigError, match="has more than one record"):
        Journal(tmp_path, HEAD)


def test_errors_are_moved_aside(tmp_path: Path) -> None:
    """A superseded record is moved from the journal to another file, and its attempt still counts (L06)."""
    with Journal(tmp_path, HEAD) as journal:
        journal.append(record("a"))
        journal.append(record("b", STATUS.ERROR))
        journal.append(record("c"))
        journal.supersede({TrialId("b")})
        assert [trial.task_id for trial in journal.entries] == ["a", "c"]
        assert journal.attempts(TrialId("b")) == 1
        journal.append(record("b", provenance={"attempt": 2}))
    assert tasks(tmp_path) == ["a", "c", "b"]
    assert [json.loads(line)["task_id"] for line in (tmp_path / SUPERSEDED).read_bytes().splitlines()] == ["b"]
    with Journal(tmp_path, HEAD) as journal:
        assert journal.attempts(TrialId("b")) == 2
        assert journal.append(record("d")).sequence == 4


def test_attempts_outlive_the_process(tmp_path: Path) -> None:
    """The number of attempts is still known if a run ends after it superseded a record and before the next attempt."""
    with Journal(tmp_path, HEAD) as journal:
        for attempt in (1, 2):
            journal.append(record("b", STATUS.ERROR, provenance={"attempt": attempt}))
            journal.supersede({TrialId("b")})
    with Journal(tmp_path, HEAD) as journal:
        assert journal.entries == {}
        assert journal.attempts(TrialId("b")) == 2
        assert journal.append(record("x")).sequence == 2


def test_setting_aside_twice_keeps_one_copy(tmp_path: Path) -> None:
    """If a run was killed while it superseded a record, superseding it again keeps a single copy (L01)."""
    with Journal(tmp_path, HEAD) as journal:
        journal.append(record("a", STATUS.ERROR))
    (tmp_path / SUPERSEDED).write_bytes((tmp_path / JOURNAL).read_bytes())
    (tmp_path / f".{JOURNAL}.new").write_bytes(b"half a li")
    with Journal(tmp_path, HEAD) as journal:
        journal.supersede({TrialId("a")})
        journal.append(record("a"))
    assert len((tmp_path / SUPERSEDED).read_bytes().splitlines()) == 1
    assert tasks(tmp_path) == ["a"]
    assert not (tmp_path / f".{JOURNAL}.new").exists()


def test_nothing_to_set_aside_changes_nothing(tmp_path: Path) -> None:
    """If no records are superseded, no file is created or replaced."""
    write(tmp_path, "a")
    inode = (tmp_path / JOURNAL).stat().st_ino
    with Journal(tmp_path, HEAD) as journal:
        journal.supersede(set())
    assert (tmp_path / JOURNAL).stat().st_ino == inode
    assert not (tmp_path / SUPERSEDED).exists()


def rewrite(directory: Path, *numbers: int, name: str = JOURNAL) -> None:
    """Keep only the lines with these numbers, in this order."""
    lines = (directory / name).read_bytes().splitlines(keepends=True)
    (directory / name).write_bytes(b"".join(lines[number] for number in numbers))


@pytest.mark.parametrize("kept", [(1, 2), (0, 2), (1, 0, 2), (2, 1, 0)])
def test_a_record_that_is_gone_or_moved_is_noticed(tmp_path: Path, kept: tuple[int, ...]) -> None:
    """A gap or a wrong order is refused, so that nobody can remove an unwelcome verdict unnoticed."""
    write(tmp_path, "a", "b", "c")
    rewrite(tmp_path, *kept)
    with pytest.raises(ConfigError) as raised:
        Journal(tmp_path, HEAD)
    assert raised.value.code == "chain-broken"
    assert "remove this line" not in str(raised.value)


def test_numbers_go_on_over_superseded_records(tmp_path: Path) -> None:
    """Sequence numbers include superseded records.

    A record that is in the journal and in the file of superseded records counts once.
    """
    with Journal(tmp_path, HEAD) as journal:
        journal.append(record("a", STATUS.ERROR))
        journal.append(record("b"))
        before = (tmp_path / JOURNAL).read_bytes()
        journal.supersede({TrialId("a")})
        journal.append(record("a", provenance={"attempt": 2}))
    Journal(tmp_path, HEAD).__exit__(None, None, None)
    (tmp_path / SUPERSEDED).rename(tmp_path / "hidden")
    with pytest.raises(ConfigError, match="sequence number 0, not"):
        Journal(tmp_path, HEAD)
    (tmp_path / "hidden").rename(tmp_path / SUPERSEDED)
    (tmp_path / JOURNAL).write_bytes(before)  # as if the run had been killed between the two writes
    with Journal(tmp_path, HEAD) as journal:
        assert set(journal.entries) == {TrialId("a"), TrialId("b")}


IDENTITY = RunIdentity(
    provenance={"pack": "ab"},
    tasks={"pack/one": ("short_answer", {"commitment": "c"})},
    verifiers={"short_answer": {"family": "short_answer", "version": "1"}},
    driver={"name": "oci", "runtime": "crun"},
    images={"image:1": "sha256:1"},
)
OWN: dict[str, JsonValue] = {
    "run": HEAD.run_digest,
    "attempt": 1,
    "pack": "ab",
    "row": {"commitment": "c"},
    "image": {"reference": "image:1", "id": "sha256:1"},
    "verifier": {"family": "short_answer", "version": "1"},
    "driver": {"name": "oci", "runtime": "crun", "weaker": []},
}


@pytest.mark.parametrize(
    "change",
    [
        {"run_id": "other"},
        {"benchmark_id": "other"},
        {"task_id": "pack/two"},
        {"trial": 2},
        {"record_version": 2, "trial": "absent", "tags": "absent", "previous": "absent"},
        {"provenance": {**OWN, "pack": "cd"}},
        {"provenance": {**OWN, "row": {"commitment": "d"}}},
        {"provenance": {**OWN, "row": None}},
        {"provenance": {**OWN, "image": {"reference": "image:1", "id": "sha256:2"}}},
        {"provenance": {**OWN, "image": {"reference": "image:2", "id": "sha256:1"}}},
        {"provenance": {**OWN, "image": "sha256:1"}},
        {"provenance": {**OWN, "verifier": {"family": "short_answer", "version": "2"}}},
        {"provenance": {**OWN, "driver": {"name": "docker", "runtime": "crun"}}},
    ],
    ids=str,
)
@pytest.mark.parametrize("end", [b"\n", b""])
def test_a_record_of_another_run_is_refused(tmp_path: Path, change: dict[str, Any], end: bytes) -> None:
    """A record whose ids, version or provenance differ from the run's is refused.

    The journals of two runs are easily joined by mistake.
    """
    (tmp_path / JOURNAL).write_bytes(record(provenance=OWN).line(0, HEAD.genesis))
    with Journal(tmp_path, HEAD, IDENTITY) as journal:
        assert set(journal.entries) == {TrialId("pack/one")}
    fields = {**record(provenance=OWN).to_json(0, HEAD.genesis), **change}
    line = json.dumps({name: value for name, value in fields.items() if value != "absent"}).encode() + end
    (tmp_path / JOURNAL).write_bytes(line)
    with pytest.raises(ConfigError) as raised:
        Journal(tmp_path, HEAD, IDENTITY)
    assert raised.value.code == "record-foreign"
    assert (tmp_path / JOURNAL).read_bytes() == line
    assert raised.value.problems[0].location is not None


def test_an_image_that_was_never_found_is_none_of_another(tmp_path: Path) -> None:
    """The record of a task that ended before its image was found has an empty image id, and is accepted."""
    error = record(status=STATUS.ERROR, provenance={**OWN, "image": {"reference": "image:1", "id": ""}})
    (tmp_path / JOURNAL).write_bytes(error.line(0, HEAD.genesis))
    with Journal(tmp_path, HEAD, IDENTITY) as journal:
        assert journal.entries[TrialId("pack/one")].status is STATUS.ERROR


def test_a_verdict_cannot_become_pending(tmp_path: Path) -> None:
    """A pending record is refused if the family has a verifier: it could hide a failure from the pass rate."""
    pending = record(status=STATUS.PENDING, verifier=None, provenance=OWN)
    (tmp_path / JOURNAL).write_bytes(pending.line(0, HEAD.genesis))
    with pytest.raises(ConfigError, match="contradicts itself"):
        Journal(tmp_path, HEAD, IDENTITY)


@pytest.mark.parametrize("name", [JOURNAL, SUPERSEDED])
@pytest.mark.parametrize("kind", ["pipe", "link", "directory"])
def test_what_is_no_regular_file_is_refused(tmp_path: Path, name: str, kind: str) -> None:
    """A pipe, link or directory in place of a file with records is refused."""
    path = tmp_path / name
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to(tmp_path / "elsewhere")
    else:
        path.mkdir()
    with pytest.raises(ConfigError) as caught:
        Journal(tmp_path, HEAD)
    assert caught.value.code == "file-not-regular"
