"""The files that a fake sandbox sees: an in-memory root, in-memory tmpfs, and host mounts, which are real.

Errors are those of the kernel: ``OSError`` with the ``errno`` that a real sandbox would give.
"""

from __future__ import annotations

import errno
import os
import posixpath
import tarfile
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from securebench.sandboxes.base import Mount, SandboxSpec


@dataclass(slots=True)
class FakeFile:
    """A file in memory, of user ``owner``. ``kind`` is the type of a tar member: a link's ``data`` is its target."""

    data: bytes
    owner: int = 0
    mode: int = 0o644
    kind: bytes = tarfile.REGTYPE


@dataclass(slots=True)
class FakeFileSystem:
    """What all processes of one fake container share: absolute path to file, in the root and in tmpfs."""

    root: dict[str, FakeFile] = field(default_factory=dict)
    temporary: dict[str, FakeFile] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)
    """Held by every change, and by whoever ends the container: after its end nothing changes."""

    @classmethod
    def of_image(cls, files: Mapping[str, bytes]) -> FakeFileSystem:
        """Return a fresh one, with the files of an image."""
        return cls(root={path: FakeFile(data) for path, data in files.items()})


class FakeFiles:
    """The view of one process: paths relative to its working directory, permissions of its user."""

    def __init__(
        self, system: FakeFileSystem, spec: SandboxSpec, workdir: str, check: Callable[[], None] = lambda: None
    ) -> None:
        self._check = check
        self._system = system
        self._spec = spec
        self._workdir = workdir

    def read(self, path: str) -> bytes:
        """Return the content of ``path``."""
        if (host := self.host_path(path)) is not None:
            return host.read_bytes()
        return self._find(path).data

    def write(self, path: str, data: bytes, *, append: bool = False) -> None:
        """Write ``path``, as far as mounts, owner, file size and room allow."""
        with self._changing():
            if (host := self.host_path(path)) is not None:
                self._raise_if_mounted_read_only(path)
                with host.open("ab" if append else "wb") as file:
                    file.write(data)
                return
            target = self._absolute(path)
            files = self._writable(target)
            old = files.get(target)
            content = (old.data if old and append else b"") + data
            self._raise_if_too_large(target, content)
            if old is None:
                files[target] = FakeFile(content, self._spec.user[0])
            else:
                files[target] = replace(old, data=content)

    def exists(self, path: str) -> bool:
        """Whether there is a file, or a directory of files, at ``path``."""
        if (host := self.host_path(path)) is not None:
            return host.exists()
        target = self._absolute(path)
        return any(name == target or name.startswith(f"{target}/") for name in self._all())

    def names(self, path: str) -> list[str]:
        """Return the sorted names in the directory ``path``."""
        if (host := self.host_path(path)) is not None:
            return sorted(entry.name for entry in host.iterdir())
        prefix = self._absolute(path).rstrip("/") + "/"
        return sorted({name.removeprefix(prefix).split("/")[0] for name in self._all() if name.startswith(prefix)})

    def make(self, path: str, kind: bytes = tarfile.REGTYPE, data: bytes = b"", mode: int = 0o644) -> None:
        """Put something of any ``kind`` at ``path`` of the root, in place of what is there."""
        with self._changing():
            target = self._absolute(path)
            self._writable(target)[target] = FakeFile(data, self._spec.user[0], mode, kind)

    def change_mode(self, path: str, mode: int) -> None:
        """Change the mode of a file of the root."""
        with self._changing():
            target = self._absolute(path)
            self._writable(target)[target] = replace(self._find(path), mode=mode)

    def remove_tree(self, path: str) -> None:
        """Remove what is at ``path`` of the root, and below it."""
        with self._changing():
            target = self._absolute(path)
            files = self._writable(target)
            for name in [name for name in files if name == target or name.startswith(f"{target}/")]:
                del files[name]

    def make_directory(self, path: str) -> None:
        """Make a directory in a mount. In memory, directories are there when a file is."""
        with self._changing():
            if (host := self.host_path(path)) is not None:
                self._raise_if_mounted_read_only(path)
                host.mkdir(parents=True, exist_ok=True)

    def remove(self, path: str) -> None:
        """Remove the file ``path``."""
        with self._changing():
            if (host := self.host_path(path)) is not None:
                self._raise_if_mounted_read_only(path)
                host.unlink()
                return
            self._find(path)
            target = self._absolute(path)
            files = self._writable(target)
            del files[target]
            if files is self._system.root:  # its directory stays, also when nothing is in it any more
                files.setdefault(posixpath.dirname(target), FakeFile(b"", 0, 0o755, tarfile.DIRTYPE))

    def host_path(self, path: str) -> Path | None:
        """Return where ``path`` lies on the host, if it is in a mount: for what only a real file system can do."""
        target = PurePosixPath(self._absolute(path))
        mount = self._mount_of(target)
        return None if mount is None else Path(mount.source, *target.relative_to(mount.target).parts)

    def temporary_bytes(self) -> int:
        """Return how much the files in tmpfs take together, which counts as memory."""
        return sum(len(file.data) for file in self._system.temporary.values())

    @contextmanager
    def _changing(self) -> Iterator[None]:
        with self._system.lock:
            self._check()
            yield

    def _absolute(self, path: str) -> str:
        return posixpath.normpath(posixpath.join(self._workdir, path))

    def _all(self) -> set[str]:
        return {*self._system.root, *self._system.temporary}

    def _mount_of(self, target: PurePosixPath) -> Mount | None:
        fitting = [mount for mount in self._spec.mounts if target.is_relative_to(mount.target)]
        return max(fitting, key=lambda mount: len(mount.target), default=None)

    def _find(self, path: str) -> FakeFile:
        target = self._absolute(path)
        file = self._system.temporary.get(target) or self._system.root.get(target)
        if file is None:
            raise _error(errno.ENOENT, path)
        return file

    def _writable(self, target: str) -> dict[str, FakeFile]:
        if self._in_tmpfs(target):
            return self._system.temporary
        if self._spec.read_only:
            raise _error(errno.EROFS, target)
        old = self._system.root.get(target)
        if self._spec.user[0] != (0 if old is None else old.owner):
            raise _error(errno.EACCES, target)
        return self._system.root

    def _in_tmpfs(self, target: str) -> bool:
        return any(PurePosixPath(target).is_relative_to(path) for path in self._spec.tmpfs)

    def _raise_if_mounted_read_only(self, path: str) -> None:
        mount = self._mount_of(PurePosixPath(self._absolute(path)))
        if mount is not None and mount.read_only:
            raise _error(errno.EROFS, path)

    def _raise_if_too_large(self, target: str, content: bytes) -> None:
        if len(content) > self._spec.limits.file_size:
            raise _error(errno.EFBIG, target)
        if self._in_tmpfs(target):
            others = self.temporary_bytes() - len(self._system.temporary.get(target, FakeFile(b"")).data)
            if others + len(content) > self._spec.limits.tmpfs:
                raise _error(errno.ENOSPC, target)


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
