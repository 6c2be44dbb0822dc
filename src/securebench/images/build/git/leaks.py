"""Find history that a task's repository must not contain. Reads plain files and never runs git.

In a task's image, only the history of the commit that the task starts from is allowed (F01 and C22 in the catalogue of
attacks). In an image from a Dockerfile, other history is only a warning, because a task may be about it. In the
repository that is made from a derived image's source, other history is an error.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from securebench.errors import ImageError
from securebench.fs.safe_open import OPEN_DIRECTORY, OPEN_FILE, open_below, opened
from securebench.fs.walk import EntryKind
from securebench.images.build.derived.host_tree import walk
from securebench.images.build.git.objects import PACK_INDEX, GitObjects
from securebench.plurals import counted
from securebench.printable import printable_name

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MAX_FILE: Final = 4 * 1024 * 1024
_SHOWN: Final = 5
_COMMIT = re.compile(rb"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_OTHER_IDS = re.compile(rb"(?im)^\s*(?:\[extensions\]\s*)?objectformat[ \t]*=[ \t]*(?!sha1\s*$)\S")
_POINTERS: Final = ("ORIG_HEAD", "FETCH_HEAD", "MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "BISECT_LOG")
_BORROWED: Final = ("objects/info/alternates", "objects/info/http-alternates", "commondir")
_PACKED_REFS: Final = "packed-refs"


@dataclass(frozen=True, slots=True)
class Leak:
    """One finding. ``place`` is ``.git`` or a path below the repository's ``.git``; ``what`` describes the leak."""

    repository: str
    place: str
    what: str

    def __str__(self) -> str:
        return f"{self.repository}: {self.place}: {self.what}"


def image_leaks(root: Path) -> list[Leak]:
    """Return the leaks of every repository with a ``.git`` directory in an unpacked image."""
    with opened(root, OPEN_DIRECTORY) as top:
        found = [e.path for e in walk(top, content=False) if e.name == b".git" and e.kind is EntryKind.DIRECTORY]
    return [
        Leak(f"/{printable_name(path.removesuffix(b'/.git'))}", leak.place, leak.what)
        for path in found
        for leak in repository_leaks(root / os.fsdecode(path).removesuffix(".git"))
    ]


def repository_leaks(tree: Path) -> list[Leak]:
    """Return what the repository in ``tree`` contains besides the history of HEAD. Links are not followed.

    A directory without ``.git`` has no leaks. Raises :class:`ImageError` (``image-too-large``) and ``OSError``.
    """
    try:
        with opened(tree, OPEN_DIRECTORY) as top, opened(".git", OPEN_DIRECTORY, top) as directory:
            repository = _Repository(directory)
            found = [*repository.leaks()]
            if unchecked := repository.unchecked_objects():
                found.append(("objects", f"cannot check for commits outside HEAD's history: {unchecked}"))
            else:
                found += _unreachable_commits(tree, repository.head())
            return [Leak(str(tree), place, what) for place, what in found]
    except FileNotFoundError:
        return []
    except NotADirectoryError:
        return [Leak(str(tree), ".git", "it is not a directory, so the repository may be elsewhere")]


def _unreachable_commits(tree: Path, head: bytes) -> Iterator[tuple[str, str]]:
    """Yield findings, each as a place and a description.

    There is one finding for all commits outside the history of ``head``, and another if the commit ``head`` is missing.
    If some objects cannot be read, that is the only finding.
    """
    try:
        with GitObjects(tree / ".git" / "objects", str(tree)) as objects:
            commits = set(objects.commits())
            before = _ancestors(objects, head.decode("ascii", "replace"), commits)
    except ImageError as error:
        yield "objects", f"some objects cannot be read: {error.message}"
        return
    if head and not before:
        yield "objects", "they do not contain HEAD's commit"
    if others := sorted(commits - before):
        found = counted(len(others), "commit")
        yield "objects", f"{found} outside HEAD's history, such as {_few(iter(others))}"


def _ancestors(objects: GitObjects, head: str, commits: set[str]) -> set[str]:
    seen: set[str] = set()
    pending = [head]
    while pending:
        commit = pending.pop()
        if commit in seen or commit not in commits:
            continue
        seen.add(commit)
        lines = objects.read(commit, b"commit").partition(b"\n\n")[0].split(b"\n")
        pending += [line[7:].decode("ascii", "replace") for line in lines if line.startswith(b"parent ")]
    return seen


class _Repository:
    def __init__(self, directory: int) -> None:
        self._directory = directory
        self._paths = {os.fsdecode(entry.path): entry.kind for entry in walk(directory, content=False)}

    def leaks(self) -> Iterator[tuple[str, str]]:
        yield from self._refs()
        yield from self._logs()
        for name in _POINTERS:
            if self._read(name).strip():
                yield name, "it may name other commits"
        for name in _BORROWED:
            if self._read(name).strip():
                yield name, "it links to objects of another repository"
        if remotes := re.findall(rb'(?m)^\s*\[remote\s+"([^"\n]*)"', self._read("config")):
            yield "config", f"it contains the remotes {_few(map(printable_name, remotes))}"
        for kind in ("modules", "worktrees"):
            if any(path.startswith(f"{kind}/") for path in self._paths):
                yield kind, "it contains other repositories"
        if "shallow" in self._paths:
            yield "shallow", "the clone is shallow, and this file lists the commits where its history ends"

    def unchecked_objects(self) -> str:
        """Return why a check for commits outside HEAD's history is impossible, or an empty string."""
        for path in self._paths:
            if path.partition("/")[0] != "objects":
                continue
            directory, _, name = path.rpartition("/")
            if self._paths[path] is EntryKind.LINK:
                return f"{printable_name(os.fsencode(path))} is a link"
            if directory == "objects/pack" and name.endswith(".idx") and not PACK_INDEX.fullmatch(name):
                return f"{printable_name(os.fsencode(path))} does not have a name that git gives to a pack index"
        return "the ids are not SHA-1" if _OTHER_IDS.search(self._read("config")) else ""

    def _refs(self) -> Iterator[tuple[str, str]]:
        head = self.head()
        refs = self._all_refs()
        for name, commit in sorted(refs.items()):
            if name == "refs/stash":
                yield name, "a stash"
            elif name.startswith("refs/notes/"):
                yield name, "notes"
            elif name.startswith("refs/tags/"):
                yield name, "a tag"
            elif name.startswith("refs/remotes/"):
                yield name, "a remote branch"
            elif commit != head:
                yield name, f"it points to {printable_name(commit)}, not to HEAD's commit"

    def _all_refs(self) -> dict[str, bytes]:
        refs: dict[str, bytes] = {}
        for line in self._read(_PACKED_REFS).split(b"\n"):
            commit, _, name = line.partition(b" ")
            if _COMMIT.fullmatch(commit):
                refs[os.fsdecode(name)] = commit
        loose = [path for path, kind in self._paths.items() if path.startswith("refs/") and kind is EntryKind.FILE]
        return refs | {path: self._read(path).strip() for path in loose}

    def head(self) -> bytes:
        """Return the checked-out commit, or ``b""`` if there is none."""
        head = self._read("HEAD").strip()
        for _ in range(_SHOWN):
            if not head.startswith(b"ref: "):
                break
            head = self._all_refs().get(os.fsdecode(head.removeprefix(b"ref: ")), b"")
        return head

    def _logs(self) -> Iterator[tuple[str, str]]:
        for path in sorted(self._paths):
            lines = self._read(path).splitlines() if path.startswith("logs/") else []
            if len(lines) > 1 or (path == "logs/refs/stash" and lines):
                yield path, f"a reflog with {counted(len(lines), 'entry', 'entries')}, which may name later commits"

    def _read(self, path: str) -> bytes:
        """Return the beginning of a regular file, or ``b""`` if there is no such file."""
        if self._paths.get(path) is not EntryKind.FILE:
            return b""
        *parents, last = os.fsencode(path).split(b"/")
        here = open_below(self._directory, parents)
        try:
            with opened(last, OPEN_FILE, here) as descriptor, os.fdopen(descriptor, "rb", closefd=False) as file:
                return file.read(_MAX_FILE)
        finally:
            os.close(here)


def _few(names: Iterator[str]) -> str:
    return ", ".join(list(names)[:_SHOWN])
