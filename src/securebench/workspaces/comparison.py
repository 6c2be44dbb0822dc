"""Compare the current files with those of the image, name by name and byte by byte."""

from __future__ import annotations

import os
import stat
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from securebench.fs.safe_open import TreeRefusal, TreeRefusedError
from securebench.fs.walk import MAX_OFFENDERS, TreeLimits
from securebench.limits import MIB
from securebench.patches.model import FileVersion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from securebench.workspaces.image_tree import HostTree

CHANGE_LIMITS: Final = TreeLimits(total_bytes=64 * MIB, entries=10_000)
"""Limits of the changes. ``total_bytes``: of new and changed files. ``entries``: new, changed and deleted files.

Real patches are far smaller.
"""

CACHES: Final = frozenset({b"__pycache__", b".pytest_cache", b".mypy_cache", b".ruff_cache"})
"""Cache directories that tools create."""
BYTECODE: Final = b".pyc"
VERSION_CONTROL: Final = b".git"


@dataclass(slots=True)
class StateComparison:
    """The differences found so far. If they exceed ``limits``, methods raise :class:`TreeRefusedError`."""

    pristine: HostTree
    limits: TreeLimits
    delta: dict[bytes, FileVersion | None] = field(default_factory=dict)
    ignored: Counter[str] = field(default_factory=Counter)
    offenders: list[str] = field(default_factory=list)
    total: int = 0

    def finish(self) -> dict[str, int]:
        """End the comparison and return the number of ignored entries by kind. Raises if there are unsafe entries."""
        if self.offenders:
            raise TreeRefusedError(TreeRefusal.UNSAFE, *self.offenders)
        if self.pristine.status(VERSION_CONTROL) is not None:
            self.ignored[VERSION_CONTROL.decode()] = 1
        return dict(sorted(self.ignored.items()))

    def skips(self, path: bytes) -> bool:
        """Return whether ``path`` is ignored, and count it if so.

        Call this once for each path, but not for paths below an ignored path.
        """
        name = path.rpartition(b"/")[2]
        if path == VERSION_CONTROL:
            self.ignored[VERSION_CONTROL.decode()] = 1
            return True
        kind = _cache(name)
        if kind:
            self.ignored[kind] += 1
        return bool(kind)

    def refuse(self, refused: TreeRefusedError) -> None:
        """Record why an entry was refused. Raises if a limit was exceeded or ``MAX_OFFENDERS`` entries are unsafe."""
        self.offenders += refused.offenders
        if refused.refusal is not TreeRefusal.UNSAFE or len(self.offenders) >= MAX_OFFENDERS:
            raise TreeRefusedError(refused.refusal, *self.offenders)

    def gone(self, top: bytes) -> None:
        """Record that everything at and below ``top`` in the image was deleted, except ignored files."""
        for path in self.pristine.files(top):
            names = path.split(b"/")
            if names[0] != VERSION_CONTROL and not any(map(_cache, names)):
                self._set(path, None)

    def link(self, path: bytes, target: bytes) -> None:
        """Record a symbolic link."""
        self.version(path, FileVersion(target, link=True))

    def copy(self, path: bytes, source: bytes) -> None:
        """Record a hard link as a file with the content of ``source``, which was compared before."""
        version = self.delta.get(source) or self.pristine.get(source)
        if version is not None:
            self.version(path, version)

    def is_directory(self, path: bytes) -> bool:
        """Return whether ``path`` is a directory in the image."""
        status = self.pristine.status(path)
        return status is not None and stat.S_ISDIR(status.st_mode)

    def version(self, path: bytes, version: FileVersion) -> None:
        """Record a file or link whose whole content is known."""
        if self.pristine.get(path) == version:
            self.delta.pop(path, None)
        else:
            self._weigh(len(version.content))
            self._set(path, version)

    def file(self, path: bytes, size: int, pieces: Iterable[bytes | memoryview], *, executable: bool) -> None:
        """Compare a file with that of the image, piece by piece, so that unchanged files are never held in memory."""
        before = self.pristine.status(path)
        if before is None or not stat.S_ISREG(before.st_mode) or before.st_size != size:
            self._weigh(size)
            self._set(path, FileVersion(b"".join(pieces), executable))
            return
        descriptor = self.pristine.open_file(path)
        try:
            content = _different(descriptor, pieces, lambda: self._weigh(size))
            if content is None and bool(before.st_mode & stat.S_IXUSR) != executable:
                self._weigh(size)
                content = os.pread(descriptor, size, 0)
        finally:
            os.close(descriptor)
        if content is None:
            self.delta.pop(path, None)
        else:
            self._set(path, FileVersion(content, executable))

    def _set(self, path: bytes, version: FileVersion | None) -> None:
        self.delta[path] = version
        if len(self.delta) > self.limits.entries:
            raise TreeRefusedError(TreeRefusal.TOO_LARGE, f"more than {self.limits.entries} files were changed")

    def _weigh(self, size: int) -> None:
        self.total += size
        if self.total > self.limits.total_bytes:
            raise TreeRefusedError(
                TreeRefusal.TOO_LARGE, f"new and changed files have more than {self.limits.total_bytes} bytes in total"
            )


def _cache(name: bytes) -> str:
    """Return the kind of cache with this name, or an empty string."""
    return "*.pyc" if name.endswith(BYTECODE) else name.decode() if name in CACHES else ""


def _different(descriptor: int, pieces: Iterable[bytes | memoryview], weigh: Callable[[], None]) -> bytes | None:
    """Return the content of ``pieces`` if it differs from the content of the file ``descriptor``, or else ``None``.

    Both have the same size. If the contents differ, ``weigh`` is called first. It raises an error if the changes are
    too large.
    """
    offset, rest = 0, iter(pieces)
    for piece in rest:
        if os.pread(descriptor, len(piece), offset) != piece:
            weigh()
            return b"".join((os.pread(descriptor, offset, 0), piece, *rest))
        offset += len(piece)
    return None
