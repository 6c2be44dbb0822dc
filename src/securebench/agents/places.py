"""The directories of the agents' cache: installed programs, locks, and unfinished work.

All users may read programs: they are public, and sandboxes without a root user run them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from securebench.errors import InfrastructureError
from securebench.fs.home import in_closed_home
from securebench.fs.user_store import UserStore

if TYPE_CHECKING:
    from pathlib import Path

DIRECTORY_VARIABLE: Final = "SECUREBENCH_AGENTS"
_READABLE: Final = 0o755
_PRIVATE: Final = 0o700


AGENTS: Final = UserStore(
    directory="agents",
    variable=DIRECTORY_VARIABLE,
    name="the agents' cache",
    prune="'securebench agents remove' removes programs",
    error=InfrastructureError,
    code="agent-store-unusable",
)
default_directory = AGENTS.default_directory
explaining = AGENTS.explaining


@dataclass(frozen=True, slots=True)
class ProgramKey:
    """The key of a program. Its parts are plain names."""

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
        """Installed programs, in directories by name, version and platform."""
        return self.top / "programs"

    @property
    def work(self) -> Path:
        """Unfinished work. The process that works in a directory locks it."""
        return self.top / "work"

    @property
    def locks(self) -> Path:
        """Lock files."""
        return self.top / "locks"

    @property
    def store_lock(self) -> Path:
        """The lock for creating and clearing work directories."""
        return self.locks / "store"

    def program(self, key: ProgramKey) -> Path:
        """Return the directory of a program."""
        return self.programs / key.name / key.version / key.platform

    def install_lock(self, key: ProgramKey) -> Path:
        """Return the lock for installing a program: one process at a time."""
        return self.locks / f"{key.name}-{key.version}-{key.platform}.install"

    def use_lock(self, key: ProgramKey) -> Path:
        """Return the lock of a program: shared while it is used, exclusive while it is removed."""
        return self.locks / f"{key.name}-{key.version}-{key.platform}.use"

    def has(self, key: ProgramKey) -> bool:
        """Return whether a program exists, in whatever state. Raises ``OSError`` if that cannot be read."""
        return not in_closed_home(self.top) and self.program(key).is_dir()

    def found(self) -> tuple[ProgramKey, ...]:
        """Return all programs in order, in whatever state. Raises ``OSError`` if they cannot be read."""
        if in_closed_home(self.top):
            return ()
        found = (path.relative_to(self.programs).parts for path in self.programs.glob("*/*/*"))
        return tuple(ProgramKey(*parts) for parts in sorted(found))

    def make(self) -> None:
        """Create the cache if it does not exist. Raises :class:`InfrastructureError` (``agent-store-unusable``)."""
        readable = dict.fromkeys((self.top, self.programs), _READABLE)
        AGENTS.make(self.top, readable | dict.fromkeys((self.work, self.locks), _PRIVATE))
