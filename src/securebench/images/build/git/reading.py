"""Reading the files of a commit from an untrusted repository."""

from __future__ import annotations

from typing import TYPE_CHECKING

from securebench.images.build.git.model import (
    DIRECTORY,
    EXECUTABLE,
    FILE,
    GITLINK,
    LINK,
    MAX_BYTES,
    MAX_FILES,
    SourceFile,
    SourceTree,
    check_path,
    unusable,
)
from securebench.images.build.git.objects import GitObjects
from securebench.printable import printable_name

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_NAME_BYTES = 20
_GROUP_WRITABLE = 0o100664
"""The mode of plain files in very old commits."""


def read_commit(repository: Path, commit: str) -> SourceTree:
    """Return the files of ``commit``, byte for byte as committed, without filters, attributes or conversion.

    ``repository`` is a clone with a ``.git`` directory, or a bare one. Raises :class:`ImageError`
    (``source-unusable``).
    """
    directory = git_directory(repository)
    with GitObjects(directory / "objects", str(repository)) as objects:
        return _Reading(objects, str(repository)).read(commit)


def git_directory(repository: Path) -> Path:
    """Return the ``.git`` directory of a clone, or a bare repository itself.

    Raises :class:`ImageError` (``source-unusable``).
    """
    for directory in (repository / ".git", repository):
        if (directory / "objects").is_dir() and (directory / "HEAD").exists():
            return directory
    raise unusable(str(repository), "it is not a git repository", "create one with 'git clone URL'")


class _Reading:
    def __init__(self, objects: GitObjects, what: str) -> None:
        self._objects = objects
        self._what = what
        self._files: dict[bytes, SourceFile] = {}
        self._submodules: list[bytes] = []
        self._bytes = 0

    def read(self, commit: str) -> SourceTree:
        head = self._objects.read(commit, b"commit").partition(b"\n")[0]
        kind, _, tree = head.partition(b" ")
        if kind != b"tree":
            raise unusable(self._what, f"its commit {commit} has no tree")
        pending = [(b"", tree.decode("ascii", "replace"))]
        seen: set[bytes] = set()
        while pending:
            above, name = pending.pop()
            for mode, entry, wanted in _entries(self._objects.read(name, b"tree"), self._what):
                path = above + entry
                check_path(path, self._what)
                if path in seen:
                    raise unusable(self._what, f"it has two entries with the name {printable_name(path)!r}")
                seen.add(path)
                # If each tree contains the next one twice, a few small objects result in millions of paths.
                if len(seen) > 2 * MAX_FILES:
                    raise unusable(self._what, f"it has more than {2 * MAX_FILES} files and directories")
                if mode == DIRECTORY:
                    pending.append((path + b"/", wanted))
                else:
                    self._add(path, mode, wanted)
        return SourceTree(self._files, tuple(sorted(self._submodules)))

    def _add(self, path: bytes, mode: int, wanted: str) -> None:
        if mode == GITLINK:
            self._submodules.append(path)
            return
        mode = FILE if mode == _GROUP_WRITABLE else mode
        if mode not in {FILE, EXECUTABLE, LINK}:
            raise unusable(self._what, f"{printable_name(path)!r} has the unsupported mode {mode:o}")
        data = self._objects.read(wanted, b"blob")
        self._bytes += len(data)
        if len(self._files) >= MAX_FILES or self._bytes > MAX_BYTES:
            raise unusable(self._what, f"it has more than {MAX_FILES} files or {MAX_BYTES} bytes")
        self._files[path] = SourceFile(mode, data)


def _entries(tree: bytes, what: str) -> Iterator[tuple[int, bytes, str]]:
    """Yield the mode, name and object id of each entry of a tree."""
    at = 0
    while at < len(tree):
        space, end = tree.find(b" ", at), tree.find(b"\0", at)
        mode = tree[at:space]
        if not at < space < end or not mode.isdigit() or mode.strip(b"01234567") or b"/" in tree[space + 1 : end]:
            raise unusable(what, "one of its trees is damaged")
        name = tree[end + 1 : end + 1 + _NAME_BYTES]
        yield int(mode, 8), tree[space + 1 : end], name.hex()
        at = end + 1 + _NAME_BYTES
