"""Tests of the candidate store: it keeps each candidate once, under the hash of its bytes, and notices any change."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
import threading
from typing import TYPE_CHECKING

import pytest

from securebench.candidates.store import CandidateStore
from securebench.errors import StorageError
from securebench.fs.safe_open import TreeRefusedError
from securebench.fs.walk import TreeLimits
from securebench.tasks import CandidateKind

if TYPE_CHECKING:
    from pathlib import Path

TEXT, WORKSPACE = CandidateKind.TEXT, CandidateKind.WORKSPACE


@pytest.fixture
def store(tmp_path: Path) -> CandidateStore:
    """Return an empty store."""
    return CandidateStore(tmp_path / "run" / "candidates")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a directory tree with one file."""
    (tmp_path / "tree/inner").mkdir(parents=True)
    (tmp_path / "tree/inner/file").write_text("content")
    return tmp_path / "tree"


def test_a_candidate_is_a_file_named_by_its_hash(store: CandidateStore) -> None:
    """A sealed candidate is a read-only file with unchanged content, named by its sha256."""
    sealed = store.seal_bytes(TEXT, b"answer", "answer")
    assert sealed.digest == hashlib.sha256(b"answer").hexdigest()
    assert (sealed.kind, sealed.size, sealed.text, sealed.path) == (TEXT, 6, "answer", store.root / sealed.digest)
    assert sealed.path.read_bytes() == b"answer"
    assert stat.S_IMODE(sealed.path.stat().st_mode) == 0o444


def test_a_tree_is_an_archive_that_standard_tools_check(store: CandidateStore, tree: Path) -> None:
    """A sealed workspace is a tar archive that ``tar`` can list, and its file name is its sha256."""
    sealed = store.seal_tree(WORKSPACE, tree)
    assert hashlib.sha256(sealed.path.read_bytes()).hexdigest() == sealed.digest
    assert (sealed.size, sealed.text) == (sealed.path.stat().st_size, None)
    listed = subprocess.run(["tar", "-tf", str(sealed.path)], check=True, capture_output=True, text=True)
    assert listed.stdout.split() == ["inner/", "inner/file"]


def test_sealing_twice_keeps_one(store: CandidateStore, tree: Path) -> None:
    """A candidate that is sealed twice, for two tasks or in a resumed run, is stored once."""
    assert store.seal_bytes(TEXT, b"answer", "answer") == store.seal_bytes(TEXT, b"answer", "answer")
    assert store.seal_tree(WORKSPACE, tree) == store.seal_tree(WORKSPACE, tree)
    assert len(list(store.root.iterdir())) == 2


@pytest.mark.parametrize("kind", [TEXT, CandidateKind.CODE])
def test_what_is_loaded_is_what_was_sealed(store: CandidateStore, tree: Path, kind: CandidateKind) -> None:
    """A candidate loaded by its digest equals the one that was sealed, so a resumed run judges the same."""
    sealed = store.seal_bytes(kind, "größe".encode(), "größe")
    assert store.load(kind, sealed.digest) == sealed
    archive = store.seal_tree(WORKSPACE, tree)
    assert store.load(WORKSPACE, archive.digest) == archive


def test_bytes_without_a_text_have_none_when_loaded(store: CandidateStore) -> None:
    """A candidate that is not UTF-8 can be sealed and loaded, and has no text."""
    sealed = store.seal_bytes(TEXT, b"\xff", None)
    assert store.load(TEXT, sealed.digest) == sealed


@pytest.mark.parametrize("position", [0, 3, -1])
def test_a_changed_byte_is_noticed(store: CandidateStore, tree: Path, position: int) -> None:
    """M05: a sealed candidate with a changed byte is refused as altered when it is loaded."""
    for sealed in (store.seal_bytes(TEXT, b"answer", "answer"), store.seal_tree(WORKSPACE, tree)):
        content = bytearray(sealed.path.read_bytes())
        content[position] ^= 1
        sealed.path.chmod(0o644)
        sealed.path.write_bytes(content)
        with pytest.raises(StorageError, match="was altered") as refused:
            store.load(sealed.kind, sealed.digest)
        assert refused.value.code == "candidate-altered"


def test_sealing_again_heals_a_changed_object(store: CandidateStore) -> None:
    """M05: if the file of a candidate was altered, sealing the candidate again replaces it."""
    sealed = store.seal_bytes(TEXT, b"answer", "answer")
    sealed.path.chmod(0o644)
    sealed.path.write_bytes(b"forged")
    store.seal_bytes(TEXT, b"answer", "answer")
    assert store.load(TEXT, sealed.digest) == sealed


@pytest.mark.parametrize("digest", ["", "../../etc/passwd", "0" * 63, "G" * 64, "0" * 64, "0" * 64 + "\n"])
def test_what_is_not_there_is_not_loaded(store: CandidateStore, digest: str) -> None:
    """M05: loading a digest that is not stored, or a text that is not a digest, such as a path, is an error."""
    with pytest.raises(StorageError) as refused:
        store.load(TEXT, digest)
    assert refused.value.code == "candidate-not-stored"


def test_a_link_or_fifo_in_place_of_a_candidate_is_refused(store: CandidateStore, host_canary: Path) -> None:
    """M05, H01, H05: a FIFO, or a link to a file with the right content, is refused in place of a candidate."""
    sealed = store.seal_bytes(TEXT, host_canary.read_bytes(), None)
    sealed.path.unlink()
    sealed.path.symlink_to(host_canary)
    with pytest.raises(StorageError):
        store.load(TEXT, sealed.digest)
    sealed.path.unlink()
    os.mkfifo(sealed.path)
    with pytest.raises(StorageError):
        store.load(TEXT, sealed.digest)


def test_a_refused_tree_leaves_nothing_behind(store: CandidateStore, tree: Path) -> None:
    """H08: a tree that is refused leaves no file in the store."""
    os.mkfifo(tree / "pipe")
    with pytest.raises(TreeRefusedError):
        store.seal_tree(WORKSPACE, tree)
    with pytest.raises(TreeRefusedError):
        store.seal_tree(WORKSPACE, tree, TreeLimits(total_bytes=1))
    assert list(store.root.iterdir()) == []


def test_half_sealed_files_of_a_killed_run_are_cleared(store: CandidateStore) -> None:
    """L01: a temporary file that a killed run left is removed, and sealed candidates stay."""
    sealed = store.seal_bytes(TEXT, b"answer", "answer")
    (store.root / ".sealing-abc").write_bytes(b"ans")
    store.clear_unfinished()
    assert list(store.root.iterdir()) == [sealed.path]


def test_threads_share_a_store(store: CandidateStore) -> None:
    """Sixteen threads that seal four different candidates at once leave one complete file for each candidate."""
    contents = [bytes([number]) * 10_000 for number in range(4)]
    threads = [threading.Thread(target=store.seal_bytes, args=(TEXT, content, None)) for content in contents * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stored = {path.name: path.read_bytes() for path in store.root.iterdir()}
    assert stored == {hashlib.sha256(content).hexdigest(): content for content in contents}


def test_a_full_disk_is_a_storage_error(tmp_path: Path) -> None:
    """L07: on a full disk, sealing raises an error that says what to do, and leaves no partial file."""
    if os.getuid() != 0:
        pytest.skip("only root mounts")
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(small)], check=True)
    try:
        store = CandidateStore(small / "candidates")
        with pytest.raises(StorageError, match="No space left") as refused:
            store.seal_bytes(TEXT, b"x" * 200_000, None)
        assert "--resume" in refused.value.hint
        assert list(store.root.iterdir()) == []
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_only_recorded_candidates_stay(store: CandidateStore) -> None:
    """``keep_only`` removes temporary files and all candidates except the given ones. Files of other kinds stay."""
    kept, other = (store.seal_bytes(TEXT, text.encode(), text) for text in ("kept", "other"))
    (store.root / "note.txt").write_text("of the owner")
    (store.root / ".sealing-x").write_text("half")
    store.keep_only({kept.digest})
    assert sorted(path.name for path in store.root.iterdir()) == sorted([kept.digest, "note.txt"])
    store.keep_only({kept.digest, other.digest})
    assert store.load(TEXT, kept.digest).text == "kept"


def test_a_store_without_candidates_has_nothing_to_remove(store: CandidateStore) -> None:
    """``keep_only`` works before the first candidate is sealed, and does not create the directory."""
    store.keep_only(())
    assert not store.root.exists()
