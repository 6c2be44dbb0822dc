"""The model of a disk, which loses only what was not synced, and recordings of programs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from power_loss.disk import (
    Cut,
    Disk,
    Link,
    Make,
    Move,
    Open,
    Promise,
    Recording,
    Remove,
    Sync,
    SyncAll,
    Write,
    frozen,
    tree_at,
    write_tree,
)
from power_loss.recorder import record, require_strace

if TYPE_CHECKING:
    from power_loss.disk import Operation, Tree

ROOT = Path("/disk")


def after(*operations: Operation, before: Tree | None = None) -> list[Tree]:
    """Return the trees that a power failure may leave after these operations."""
    disk = Disk(ROOT, before or {})
    for operation in operations:
        disk.apply(operation)
    return [state.tree for state in disk.states()]


def same(found: list[Tree], expected: list[Tree]) -> bool:
    """Return whether both lists contain the same trees, in any order."""
    return {frozen(tree) for tree in found} == {frozen(tree) for tree in expected}


def created(name: str, data: bytes) -> list[Operation]:
    """Return the operations that write and sync a file, without a sync of its directory."""
    return [Open(f"/disk/{name}", creates=True), Write(f"/disk/{name}", data), Sync(f"/disk/{name}")]


def test_a_name_is_lost_until_the_directory_is_synced() -> None:
    """A new name may be lost until its directory is synced, even if the file was synced."""
    assert same(after(*created("a", b"1")), [{}, {"a": b"1"}])
    assert after(*created("a", b"1"), Sync("/disk")) == [{"a": b"1"}]
    assert after(*created("a", b"1"), SyncAll()) == [{"a": b"1"}]


def test_content_is_lost_until_the_file_is_synced() -> None:
    """Content may be lost or torn until the file is synced, even if its directory was synced."""
    found = after(Open("/disk/a", creates=True), Write("/disk/a", b"12"), Sync("/disk"))
    assert same(found, [{"a": data} for data in (b"", b"1", b"12", b"\0\0", b"\x002", b"1\0")])


def test_names_are_lost_in_any_combination() -> None:
    """Of two new names, the later one may be on disk without the earlier one."""
    assert same(after(Make("/disk/a"), Make("/disk/b")), [{}, {"a": {}}, {"b": {}}, {"a": {}, "b": {}}])


def test_a_rename_in_a_directory_happens_or_does_not() -> None:
    """After a rename in a directory, the file has either the old name or the new one."""
    found = after(Move("/disk/a", "/disk/b"), before={"a": b"1", "b": b"2"})
    assert same(found, [{"a": b"1", "b": b"2"}, {"b": b"1"}])


def test_a_rename_between_directories_may_happen_in_one_of_them() -> None:
    """After a rename between directories, the file may have the old name, the new name, both or none."""
    found = after(Move("/disk/in/a", "/disk/b"), before={"in": {"a": b""}})
    assert same(found, [{"in": {"a": b""}, "b": b""}, {"in": {"a": b""}}, {"in": {}, "b": b""}, {"in": {}}])


def test_links_removals_and_cuts() -> None:
    """A new link, a removed name and a changed size may each be lost until they are synced."""
    linked: Tree = {"a": b"12", "b": b"12"}
    assert same(after(Link("/disk/a", "/disk/b"), before={"a": b"12"}), [linked, {"a": b"12"}])
    assert same(after(Remove("/disk/a"), before=linked), [linked, {"b": b"12"}])
    assert same(after(Cut("/disk/a", 0), before={"a": b"12"}), [{"a": b"12"}, {"a": b""}])
    assert same(after(Open("/disk/a", truncates=True), before={"a": b"12"}), [{"a": b"12"}, {"a": b""}])


def test_appended_bytes_may_be_zeros_after_what_was_there() -> None:
    """Appended bytes may be missing, torn or zeros after a power failure. Bytes synced earlier do not change."""
    ends = (b"", b"34", b"\0\0\0", b"\0\0\n", b"34\0", b"34\n")
    assert same(after(Write("/disk/a", b"34\n"), before={"a": b"12\n"}), [{"a": b"12\n" + end} for end in ends])


def test_a_lost_directory_takes_everything_with_it() -> None:
    """The content of a lost directory is lost with it, even if that content was synced."""
    steps = [Make("/disk/in"), *created("in/a", b"1"), Sync("/disk/in")]
    assert same(after(*steps), [{}, {"in": {"a": b"1"}}])
    assert after(*steps, Sync("/disk")) == [{"in": {"a": b"1"}}]


def test_a_state_has_the_promises_of_the_last_moment_at_which_it_may_occur() -> None:
    """A state that lacks the data has the promise if the promise came before the sync, and not if it came after."""
    make, promised, sync = Make("/disk/a"), Promise("a"), Sync("/disk")
    early: list[Operation] = [make, promised, sync]
    late: list[Operation] = [make, sync, promised]
    for steps, expected in ((early, ("a",)), (late, ())):
        states = Recording(ROOT, {}, steps).power_failures()
        assert {frozen(state.tree): state.promises for state in states} == {(): expected, frozen({"a": {}}): ("a",)}


def test_every_moment_counts() -> None:
    """States between two syncs are found. In such a state, a file may have a name that it does not have at the end."""
    steps = [*created("new", b"1"), Move("/disk/new", "/disk/a"), Sync("/disk"), Remove("/disk/a"), Sync("/disk")]
    recording = Recording(ROOT, {"log": b""}, [Write("/disk/log", b"1"), *steps])
    trees = [state.tree for state in recording.power_failures()]
    assert {"log": b""} in trees
    assert {"log": b"1", "new": b"1"} in trees
    assert {"log": b"", "a": b"1"} in trees


def test_files_can_be_left_out() -> None:
    """Operations on files that are left out of a recording do not lead to states."""
    steps: list[Operation] = [Make("/disk/a"), Move("/disk/a", "/disk/b"), Make("/disk/c")]
    recording = Recording(ROOT, {}, steps)
    assert same([state.tree for state in recording.without(["b", "a"]).power_failures()], [{}, {"c": {}}])


def test_many_changes_are_varied_one_at_a_time() -> None:
    """Of many changes, each is left out once while all others are kept, and kept once while all others are lost."""
    found = after(*(Make(f"/disk/{number}") for number in range(10)))
    assert len(found) == 22
    assert {} in found
    assert {str(number): {} for number in range(10)} in found


PROGRAM = """\
import os, shutil, sys, threading
from pathlib import Path
from power_loss.recorder import promise
root = Path(sys.argv[1])
def work(name):
    for number in range(20):
        with open(root / f"{name} {number}", "w+b") as file:
            file.write(b"x" * number)
            file.seek(2)
            file.write(b"y")
            file.truncate(5)
            os.fsync(file.fileno())
        os.rename(root / f"{name} {number}", root / "in" / f"{name} {number}")
        if number % 2:
            os.unlink(root / "in" / f"{name} {number}")
os.mkdir(root / "in")
threads = [threading.Thread(target=work, args=(name,)) for name in ("ä\\n", "b")]
for thread in threads: thread.start()
for thread in threads: thread.join()
shutil.copytree(root / "in", root / "copy")
here = os.open(root, os.O_DIRECTORY)
os.symlink("in", "link", dir_fd=here)
os.link("copy/b 4", "hard", src_dir_fd=here, dst_dir_fd=here)
os.rmdir(os.mkdir("gone", dir_fd=here) or "gone", dir_fd=here)
promise("done")
os.fsync(here)
os.kill(os.getpid(), 9)
"""


def test_a_recording_is_complete(root: Path) -> None:
    """All operations of a program are recorded, even with several threads and a kill at the end."""
    path = os.pathsep.join(sys.path)
    (root / "before").write_bytes(b"before")
    recording = record(root, [sys.executable, "-c", PROGRAM, str(root)], environment={"PYTHONPATH": path})
    operations = recording.operations
    assert recording.before == {"before": b"before"}
    assert sorted(tree_at(root)) == ["before", "copy", "hard", "in", "link"]
    assert sum(isinstance(operation, Sync) for operation in operations) == 41
    assert operations[-2:] == [Promise("done"), Sync(str(root))]


def test_a_program_that_writes_through_memory_is_noticed(root: Path) -> None:
    """A recording is refused if the program changed a mapped file, which needs no system call."""
    program = "import mmap, sys; f = open(sys.argv[1] + '/a', 'w+b'); f.truncate(1); mmap.mmap(f.fileno(), 1)[0] = 1"
    with pytest.raises(AssertionError, match="lacks an operation"):
        record(root, [sys.executable, "-c", program, str(root)], environment={})


def test_a_tree_is_written_as_it_was_read(root: Path) -> None:
    """A tree that is written and read back is the same, with its links and empty directories."""
    tree: Tree = {"a": b"1", "link": "a", "in": {"empty": {}}}
    write_tree(tree, root)
    assert tree_at(root) == tree


def test_tests_are_skipped_only_with_a_reason(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test is skipped if ``SECUREBENCH_NO_STRACE`` is set, with its value as the reason.

    If it is not set, a test without strace fails.
    """
    monkeypatch.setenv("SECUREBENCH_NO_STRACE", "no ptrace here")
    with pytest.raises(pytest.skip.Exception, match="no ptrace here"):
        require_strace()
    monkeypatch.delenv("SECUREBENCH_NO_STRACE")
    monkeypatch.setenv("PATH", str(root))
    with pytest.raises((AssertionError, pytest.skip.Exception), match="install strace") as caught:
        record(root, environment={})
    assert caught.type is AssertionError
