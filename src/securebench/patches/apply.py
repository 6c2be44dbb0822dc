"""Compute the changes that a patch makes to a tree. A patch applies completely or not at all. Nothing is written."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from securebench.patches.hunks import apply_hunks
from securebench.patches.model import (
    MAX_CHANGED_BYTES,
    SEARCH_STEPS,
    FileVersion,
    PatchDoesNotApplyError,
    PatchInvalidError,
    Steps,
)
from securebench.patches.names import parents, shown
from securebench.patches.parse import ChangeKind, parse

if TYPE_CHECKING:
    from securebench.patches.model import Delta, FileTree
    from securebench.patches.parse import FilePatch

_LINK: Final = 0o120000
_EXECUTABLE: Final = 0o100
_FULL_ID: Final = 40


def apply_patch(data: bytes, base: FileTree) -> Delta:
    """Return the changes that the patch ``data`` makes to ``base``. Unchanged files are not included.

    A hunk may match at a line other than the one in its header, but all its lines must match exactly. The last line of
    ``data`` may lack its line feed. Uses bounded time and memory. Raises :class:`PatchInvalidError`, also for a patch
    without files, and :class:`PatchDoesNotApplyError`.
    """
    patches = parse(data)
    applied = _Applied(base, patches)
    for patch in patches:
        applied.add(patch)
    return applied.delta()


class _Applied:
    """The state of a tree while a patch is applied."""

    def __init__(self, base: FileTree, patches: list[FilePatch]) -> None:
        self._base = base
        self._leaving = {patch.old for patch in patches if patch.kind in (ChangeKind.DELETE, ChangeKind.RENAME)}
        self._written: dict[bytes, FileVersion] = {}
        self._removed: set[bytes] = set()
        self._bytes = 0
        self._steps = Steps(SEARCH_STEPS)

    def add(self, patch: FilePatch) -> None:
        """Apply the change to one file."""
        if patch.kind in (ChangeKind.DELETE, ChangeKind.CHANGE):
            old = self._current(patch.old)
        elif patch.kind is ChangeKind.CREATE:
            old = FileVersion(b"", link=patch.new_mode == _LINK)
        else:  # like git, use the file as it was before the whole patch
            old = _required(self._base.get(patch.old), patch.old)
        _check_old(patch, old)
        new = _changed(patch, old, self._steps)
        if patch.kind in (ChangeKind.DELETE, ChangeKind.RENAME):
            self._remove(patch, new)
        if patch.kind is not ChangeKind.DELETE:
            self._write(patch, new)

    def delta(self) -> Delta:
        """Return the changes. Raises :class:`PatchDoesNotApplyError` if a file's parent is not a directory."""
        for path in self._written:
            for directory in parents(path):
                if self._final(directory) is not None:
                    raise PatchDoesNotApplyError(f"{shown(directory)} is a file or link, not a directory")
        after = {path: self._written.get(path) for path in sorted(self._removed | self._written.keys())}
        return {path: version for path, version in after.items() if version != self._base.get(path)}

    def _current(self, path: bytes) -> FileVersion:
        if path in self._removed and path not in self._written:
            raise PatchDoesNotApplyError(f"{shown(path)} was removed by the same patch")
        return _required(self._written.get(path) or self._base.get(path), path)

    def _final(self, path: bytes) -> FileVersion | None:
        if path in self._written:
            return self._written[path]
        return None if path in self._removed else self._base.get(path)

    def _remove(self, patch: FilePatch, new: FileVersion) -> None:
        if patch.kind is ChangeKind.DELETE and (new.content or patch.old in self._written):
            raise PatchDoesNotApplyError(
                f"the patch deletes {shown(patch.old)}, but either leaves content in this file or also writes to it"
            )
        if patch.old in self._removed:
            raise PatchDoesNotApplyError(f"{shown(patch.old)} is removed twice")
        self._removed.add(patch.old)

    def _write(self, patch: FilePatch, new: FileVersion) -> None:
        exists = self._base.get(patch.new) is not None and patch.new not in self._leaving
        if patch.kind is not ChangeKind.CHANGE and (exists or patch.new in self._written):
            raise PatchDoesNotApplyError(f"{shown(patch.new)} already exists")
        self._bytes += len(new.content)
        if self._bytes > MAX_CHANGED_BYTES:
            raise PatchInvalidError(f"the patch writes more than {MAX_CHANGED_BYTES} bytes")
        if new.link and (not new.content or b"\0" in new.content):
            raise PatchInvalidError(f"the target of the link {shown(patch.new)} is empty or contains a NUL byte")
        self._written[patch.new] = new


def _required(version: FileVersion | None, path: bytes) -> FileVersion:
    if version is None:
        raise PatchDoesNotApplyError(f"file {shown(path)} does not exist")
    return version


def _check_old(patch: FilePatch, old: FileVersion) -> None:
    """Raise :class:`PatchDoesNotApplyError` if ``old`` is not the version for which ``patch`` was made.

    The kind (file or link) is always checked. The content is checked only for a binary patch.
    """
    if patch.old_mode is not None and (patch.old_mode == _LINK) != old.link:
        found, expected = ("link", "file") if old.link else ("file", "link")
        raise PatchDoesNotApplyError(f"{shown(patch.old)} is a {found}, but the patch expects a {expected}")
    if patch.kind is ChangeKind.CREATE or patch.binary is None or len(patch.old_blob) != _FULL_ID:
        return
    blob = hashlib.sha1(b"blob %d\0" % len(old.content) + old.content, usedforsecurity=False).hexdigest()
    if blob != patch.old_blob.decode():
        raise PatchDoesNotApplyError(f"the binary patch was made for a different version of {shown(patch.old)}")


def _changed(patch: FilePatch, old: FileVersion, steps: Steps) -> FileVersion:
    """Return ``old`` changed by ``patch``."""
    try:
        content = patch.binary.apply(old.content) if patch.binary else apply_hunks(old.content, patch.hunks, steps)
    except PatchDoesNotApplyError as error:
        raise PatchDoesNotApplyError(f"{shown(patch.old)}: {error.message}") from None
    mode = patch.new_mode
    if mode is None or patch.kind is ChangeKind.DELETE:
        return replace(old, content=content)
    if patch.kind is not ChangeKind.CREATE and (mode == _LINK) != old.link:
        raise PatchInvalidError(
            f"a mode change cannot turn a file into a link, or a link into a file: {shown(patch.new)}"
        )
    return FileVersion(content, executable=bool(mode & _EXECUTABLE), link=mode == _LINK)
