"""Tests of copying candidates from another store.

A copy is kept only if its bytes are exactly what sealing would have written.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from typing import TYPE_CHECKING, Final

import pytest

from securebench.candidates.extraction import seal_output
from securebench.candidates.store import CandidateStore
from securebench.errors import ConfigError
from securebench.fs.tar_writer import directory_member, end_of_archive, file_header, link_member, padding
from securebench.patches.model import FileVersion
from securebench.tasks import CandidateKind

if TYPE_CHECKING:
    from pathlib import Path

TEXT, PATCH, WORKSPACE = CandidateKind.TEXT, CandidateKind.PATCH, CandidateKind.WORKSPACE


@pytest.fixture
def store(tmp_path: Path) -> CandidateStore:
    """Return an empty store."""
    return CandidateStore(tmp_path / "copy")


def archive(*members: bytes) -> bytes:
    """Return a tar archive with these members, in the format of sealed archives."""
    data = b"".join(members)
    return data + end_of_archive(len(data))


def file(path: bytes, mode: int = 0o644) -> bytes:
    """Return the tar member for a file with the content ``x``."""
    return file_header(path, 1, mode) + b"x" + padding(1)


def stored(store: CandidateStore, kind: CandidateKind, data: bytes) -> bytes:
    """Copy ``data`` into the store under its own digest, and return the stored bytes."""
    return store.seal_copy(kind, hashlib.sha256(data).hexdigest(), [data]).path.read_bytes()


def test_a_sealed_tree_is_copied(store: CandidateStore, tmp_path: Path) -> None:
    """A sealed tree with directories, an executable, a link and long names is copied byte for byte."""
    tree = tmp_path / "tree"
    (tree / "empty").mkdir(parents=True)
    (tree / "deep" / ("d" * 120)).mkdir(parents=True)
    (tree / "deep" / ("d" * 120) / "file").write_bytes(b"x" * 100_000)
    (tree / "run.sh").write_text("true\n")
    (tree / "run.sh").chmod(0o755)
    (tree / "link").symlink_to("../../" + "outside/" * 40)
    sealed = CandidateStore(tmp_path / "first").seal_tree(WORKSPACE, tree)
    assert stored(store, WORKSPACE, sealed.path.read_bytes()) == sealed.path.read_bytes()


def test_a_sealed_patch_and_a_text_are_copied(store: CandidateStore, tmp_path: Path) -> None:
    """A sealed patch is copied byte for byte, including removals. A copied text is also decoded."""
    changes = {b"a/new.py": FileVersion(b"x = 1\n"), b"a/old.py": None, b"link": FileVersion(b"a/new.py", link=True)}
    sealed = CandidateStore(tmp_path / "first").seal_patch(changes, "a patch")
    assert stored(store, PATCH, sealed.path.read_bytes()) == sealed.path.read_bytes()
    assert store.seal_copy(TEXT, hashlib.sha256(b"42").hexdigest(), [b"4", b"2"]).text == "42"


def test_output_that_is_not_text_is_copied(store: CandidateStore, tmp_path: Path) -> None:
    """Output that is not UTF-8 can be copied, because an agent's output is sealed whatever its bytes are."""
    sealed = seal_output(CandidateStore(tmp_path / "first"), TEXT, b"\xffhi", truncated=False).candidate
    assert sealed is not None
    assert stored(store, TEXT, sealed.path.read_bytes()) == b"\xffhi"
    assert store.load(TEXT, sealed.digest).text is None


HOSTILE: Final = {
    "up": archive(file(b"../up")),
    "up-through-a-directory": archive(directory_member(b"a", 0o755), file(b"a/../../up")),
    "absolute": archive(file(b"/etc/shadow")),
    "dot": archive(file(b"./a")),
    "empty-name": archive(file(b"")),
    "double-slash": archive(directory_member(b"a", 0o755), file(b"a//b")),
    "through-a-link": archive(link_member(b"a", b"/etc"), file(b"a/shadow")),
    "through-a-file": archive(file(b"a"), file(b"a/b")),
    "twice": archive(file(b"a"), file(b"a")),
    "no-parent": archive(file(b"a/b")),
    "set-user-id": archive(file(b"a", 0o4755)),
    "long-name": archive(file(b"a" * 256)),
    "too-deep": archive(*(directory_member(b"/".join([b"a"] * depth), 0o755) for depth in range(1, 70))),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_tree_that_nobody_sealed_is_refused(case: str, store: CandidateStore) -> None:
    """An archive that sealing never writes is refused, and no file is kept.

    The cases are unsafe, too long or too deep paths, duplicate or misplaced entries, and a set-user-ID file.
    """
    with pytest.raises(ConfigError) as caught:
        stored(store, WORKSPACE, HOSTILE[case])
    assert caught.value.code == "candidate-altered"
    assert not list(store.root.iterdir())


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (tarfile.LNKTYPE, "unexpected entry"),
        (tarfile.FIFOTYPE, "unexpected entry"),
        (tarfile.CHRTYPE, "unexpected entry"),
        (tarfile.SYMTYPE, "differs from the archive"),
    ],
)
@pytest.mark.parametrize("of", [WORKSPACE, PATCH])
def test_members_that_sealing_never_writes_are_refused(
    kind: bytes, why: str, of: CandidateKind, store: CandidateStore
) -> None:
    """Hard links, devices and FIFOs are refused, and so is a symbolic link with a header that sealing never writes."""
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w", format=tarfile.PAX_FORMAT) as tar:
        member = tarfile.TarInfo("entry")
        member.type, member.linkname, member.mtime = kind, "/etc/shadow", 1
        tar.addfile(member)
    with pytest.raises(ConfigError, match=f"altered: .*{why}"):
        stored(store, of, output.getvalue())


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (WORKSPACE, b"no archive"),
        (PATCH, b""),
        (PATCH, archive(file(b"../up"))),
        (PATCH, archive(file(b"a", 0o600))),
        (WORKSPACE, archive(file(b"a")) + b"more"),
    ],
)
def test_other_bytes_are_refused(kind: CandidateKind, data: bytes, store: CandidateStore) -> None:
    """A file that is not an archive in the sealed form of its kind is refused."""
    with pytest.raises(ConfigError, match="altered"):
        stored(store, kind, data)


def test_another_digest_is_refused(store: CandidateStore) -> None:
    """Content with another digest than the expected one is refused, and no file is kept."""
    with pytest.raises(ConfigError, match="now hashes to"):
        store.seal_copy(TEXT, "0" * 64, [b"answer"])
    assert not list(store.root.iterdir())
