"""Where the agents' cache keeps what: finished programs, locks, and work.

Programs are no secret, and sandboxes in which nobody is root run them: everybody may read them.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from securebench.errors import DiskFullError, InfrastructureError
from securebench.fs.home import in_closed_home
from securebench.images.store.places import data_directory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

DIRECTORY_VARIABLE: Final = "SECUREBENCH_AGENTS"
_READABLE: Final = 0o755
_PRIVATE: Final = 0o700
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


def default_directory(environ: Mapping[str, str] | None = None) -> Path:
    """Return where this user's programs are: ``SECUREBENCH_AGENTS``, or the usual place for root and for others."""
    return data_directory("agents", DIRECTORY_VARIABLE, environ)


@dataclass(frozen=True, slots=True)
class ProgramKey:
    """What a program is found by. Its parts are plain names."""

    name: str
    version: str
    platform: str

    def __str__(self) -> str:
        return f"{self.name} {self.version} {self.platform}"


@dataclass(frozen=True, slots=True)
class ProgramPaths:
    """The paths of one cache."""

    top: Path

    @property
    def programs(self) -> Path:
        """Finished programs: a directory each, by name, version and platform."""
        return self.top / "programs"

    @property
    def work(self) -> Path:
        """What is not finished. Each directory is locked by whoever works in it."""
        return self.top / "work"

    @property
    def locks(self) -> Path:
        """Files that carry locks."""
        return self.top / "locks"

    @property
    def store_lock(self) -> Path:
        """The lock of who makes and clears work."""
        return self.locks / "store"

    def program(self, key: ProgramKey) -> Path:
        """Return where a program is."""
        return self.programs / key.name / key.version / key.platform

    def install_lock(self, key: ProgramKey) -> Path:
        """Return the lock of who installs a program: one at a time."""
        return self.locks / f"{key.name}-{key.version}-{key.platform}.install"

    def use_lock(self, key: ProgramKey) -> Path:
        """Return the lock of who uses a program, shared, and of who removes it, alone."""
        return self.locks / f"{key.name}-{key.version}-{key.platform}.use"

    def has(self, key: ProgramKey) -> bool:
        """Say whether a program is there, whatever state it is in. Raises ``OSError`` if that cannot be seen."""
        return not in_closed_home(self.top) and self.program(key).is_dir()

    def found(self) -> tuple[ProgramKey, ...]:
        """Return what there is, in order, whatever state it is in. Raises ``OSError`` if that cannot be seen."""
        if in_closed_home(self.top):
            return ()
        found = (path.relative_to(self.programs).parts for path in self.programs.glob("*/*/*"))
        return tuple(ProgramKey(*parts) for parts in sorted(found))

    def make(self) -> None:
        """Make the cache where there is none. Raises :class:`InfrastructureError` (``agent-store-unusable``)."""
        with explaining(self.top):
            self.top.mkdir(parents=True, exist_ok=True)
            status = self.top.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
                raise _unusable(self.top, "it is not a directory of this user")
            for directory, mode in (
                *((self.top, _READABLE), (self.programs, _READABLE)),
                *((self.work, _PRIVATE), (self.locks, _PRIVATE)),
            ):
                directory.mkdir(exist_ok=True)
                directory.chmod(mode)


@contextmanager
def explaining(top: Path) -> Iterator[None]:
    """Give what the kernel refuses in this block its type: a full disk, or a cache that cannot be used."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise DiskFullError(
                f"the agents' cache {top} has no room: {error.strerror}",
                hint="'securebench agents remove' removes programs; "
                f"or set {DIRECTORY_VARIABLE} to a directory with more room",
            ) from error
        raise _unusable(top, str(error)) from error


def _unusable(top: Path, problem: str) -> InfrastructureError:
    return InfrastructureError(
        f"the agents' cache {top} cannot be used: {problem}",
        code="agent-store-unusable",
        hint=f"set {DIRECTORY_VARIABLE} to a directory of your own",
    )
