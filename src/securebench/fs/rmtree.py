"""Removing what somebody else wrote, whatever it is.

The removal goes by descriptors, follows no link, enters no mount, needs a fixed number of open files however deep the
tree is, and forgets names as it goes, however many there are.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from securebench.errors import StorageError
from securebench.fs.safe_open import OPEN_DIRECTORY, opened, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

_OPEN_PATH = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_entry(parent: int, name: str | bytes) -> None:
    """Remove ``name`` of the directory that the descriptor ``parent`` is, and all that is in it, if it is there.

    Raises :class:`StorageError` (``workspace-stuck``) if something in it cannot be removed, and ``OSError``.
    """
    with suppress(FileNotFoundError):
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            _Removal().run(parent, os.fsdecode(name))
        else:
            with _stuck(os.fsdecode(name)):
                os.unlink(name, dir_fd=parent)


class _Removal:
    """One removal: it stands in one directory, and remembers the way back.

    A directory is entered only after the kernel has said that it is not empty: it says of a mount that it is busy.
    """

    def run(self, parent: int, name: str) -> None:
        """Remove the directory ``name`` of ``parent``."""
        if self._remove_directory(parent, name):
            return
        here = self._enter(parent, name)
        way: list[tuple[str, tuple[int, int]]] = [(name, _identity(parent))]
        try:
            while way:
                inner = self._clear(here)
                if inner is not None:
                    way.append((inner, _identity(here)))
                    here = self._replace(here, self._enter(here, inner))
                    continue
                name, above = way.pop()
                here = self._replace(here, self._leave(here, above))
                self._remove_directory(here, name)
        finally:
            os.close(here)

    def _clear(self, here: int) -> str | None:
        """Remove what can be removed at once; return the first directory that is not empty, or ``None``."""
        with os.scandir(here) as entries:
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    with _stuck(entry.name):
                        os.unlink(entry.name, dir_fd=here)
                elif not self._remove_directory(here, entry.name):
                    return entry.name
        return None

    def _enter(self, here: int, name: str) -> int:
        """Open the directory ``name``, and make it ours to change."""
        with _stuck(name), opened(name, _OPEN_PATH, here) as found:
            status = os.fstat(found)
            if status.st_mode & stat.S_IRWXU != stat.S_IRWXU:
                Path(f"/proc/self/fd/{found}").chmod(0o700)  # an O_PATH descriptor has no fchmod
            return os.open(".", OPEN_DIRECTORY, dir_fd=found)

    @staticmethod
    def _leave(here: int, above: tuple[int, int]) -> int:
        """Open the directory above, which must be the one that we came from."""
        descriptor = os.open("..", OPEN_DIRECTORY, dir_fd=here)
        if _identity(descriptor) != above:
            os.close(descriptor)
            raise OSError(errno.EBUSY, "a directory was moved while its tree was removed")
        return descriptor

    @staticmethod
    def _replace(old: int, new: int) -> int:
        os.close(old)
        return new

    @staticmethod
    def _remove_directory(here: int, name: str) -> bool:
        """Remove the directory ``name`` if it is empty, and say whether it was."""
        with _stuck(name):
            try:
                os.rmdir(name, dir_fd=here)
            except OSError as error:
                if error.errno in {errno.ENOTEMPTY, errno.EEXIST}:
                    return False
                raise
        return True


def _identity(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


@contextmanager
def _stuck(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"cannot remove {printable(os.fsencode(name))!r}: {error.strerror or error}",
            code="workspace-stuck",
            hint="look for an immutable attribute (lsattr, chattr -i) or a mount; remove it by hand, then run again",
        ) from error
