"""Stage files on the host below a single root directory.

Every path is opened from the root's descriptor, one component at a time. Links are never followed, and a path with a
link is refused. There is one exception: :meth:`HostSandbox.exists` and :meth:`HostSandbox.remove` accept a link that is
the last component and points below the root. No staged file is executed.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, BinaryIO, Self

from securebench.errors import PathPolicyError
from securebench.sandboxes.base import MIB, resolve_sandbox_host_path

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

READ_LIMIT = 64 * MIB
"""The default limit of :meth:`HostSandbox.read` in bytes."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Opening a FIFO or device that replaced a file must not block.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK = MIB


class HostSandbox:
    """A directory of the host for files that a container will mount.

    Paths are relative POSIX paths. Methods with a path raise :class:`PathPolicyError` (``path-unsafe``) if the path
    would leave the root or passes through a link, and ``OSError`` for errors of the file system.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self._root = os.open(self.root, _DIRECTORY)

    def write(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        """Write a new file, and create its parent directories. Raises ``FileExistsError`` if the path exists."""
        with self._new_file(path, mode) as file:
            file.write(data)

    def read(self, path: str, *, limit: int = READ_LIMIT) -> bytes:
        """Return the content of a regular file.

        Raises :class:`PathPolicyError` for other types of files, and for files larger than ``limit`` bytes.
        """
        with self._parent(path) as (parent, name), os.fdopen(_open_regular(parent, name, path), "rb") as file:
            data = file.read(limit + 1)
        if len(data) > limit:
            raise PathPolicyError(f"{path!r} is larger than {limit} bytes", code="path-too-large")
        return data

    def copy_in(self, source: Path, path: str, *, mode: int = 0o644) -> None:
        """Copy a regular file of the host to a new file here. Rejects a ``source`` that is a link."""
        opened = _open_regular(None, str(source), str(source))
        with os.fdopen(opened, "rb") as reader, self._new_file(path, mode) as writer:
            while chunk := reader.read(_CHUNK):
                writer.write(chunk)

    def make_directory(self, path: str, *, mode: int = 0o755) -> None:
        """Create a directory and its parents. An existing directory is not changed."""
        with self._parent(path, create=True) as (parent, name):
            os.close(_enter(parent, name, path, mode=mode))

    def exists(self, path: str) -> bool:
        """Whether ``path`` exists. A link exists even if its target does not."""
        try:
            with self._parent(path) as (parent, name):
                os.stat(name, dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def remove(self, path: str) -> None:
        """Remove a file, a link (never what it points to) or an empty directory."""
        with self._parent(path) as (parent, name):
            mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
            remove = os.rmdir if stat.S_ISDIR(mode) else os.unlink
            remove(name, dir_fd=parent)

    def close(self) -> None:
        """Close the root's descriptor. Staged files are kept."""
        if self._root >= 0:
            os.close(self._root)
            self._root = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _new_file(self, path: str, mode: int) -> Iterator[BinaryIO]:
        """Yield a new file that only its owner can read. When the block ends, the file gets ``mode``."""
        with self._parent(path, create=True) as (parent, name):
            descriptor = os.open(name, _CREATE, 0o600, dir_fd=parent)
            with os.fdopen(descriptor, "wb") as file:
                yield file
                os.fchmod(descriptor, mode & 0o777)

    @contextmanager
    def _parent(self, path: str, *, create: bool = False) -> Iterator[tuple[int, str]]:
        """Yield the descriptor of the parent directory of ``path``, and the last component of ``path``."""
        resolve_sandbox_host_path(self.root, path)
        parts = PurePosixPath(path).parts
        if not parts:
            raise PathPolicyError("the path is empty")
        current = os.dup(self._root)
        try:
            for part in parts[:-1]:
                below = _enter(current, part, path, mode=0o755 if create else None)
                os.close(current)
                current = below
            yield current, parts[-1]
        finally:
            os.close(current)


def _enter(parent: int, name: str, path: str, *, mode: int | None = None) -> int:
    """Return the descriptor of the directory ``name``. If ``mode`` is given, create a missing directory with it."""
    try:
        return os.open(name, _DIRECTORY, dir_fd=parent)
    except FileNotFoundError:
        if mode is None:
            raise
    except OSError as error:
        raise _not_followed(error, path) from error
    os.mkdir(name, mode, dir_fd=parent)
    return os.open(name, _DIRECTORY, dir_fd=parent)


def _open_regular(parent: int | None, name: str, path: str) -> int:
    try:
        descriptor = os.open(name, _READ, dir_fd=parent)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _not_followed(error, path) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise PathPolicyError(f"{path!r} is not a regular file")
    return descriptor


def _not_followed(error: OSError, path: str) -> Exception:
    if error.errno in {errno.ELOOP, errno.ENOTDIR, errno.ENXIO}:
        return PathPolicyError(f"{path!r} contains a symbolic link, a special file, or a file in place of a directory")
    return error
