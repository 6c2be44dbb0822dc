"""Directories of data that this user's runs share: where they are, who owns them, and their errors."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from securebench.errors import DiskFullError
from securebench.fs.home import home_directory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from securebench.errors import InfrastructureError

_OF_ROOT: Final = Path("/var/lib/securebench")
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


@dataclass(frozen=True, slots=True, kw_only=True)
class UserStore:
    """A kind of shared data, such as images.

    ``directory``: the name of its directory; ``variable``: the environment variable that overrides the location;
    ``name``: what messages call it; ``prune``: the start of a hint that frees space; ``error`` and ``code``: the error
    for a directory that cannot be used.
    """

    directory: str
    variable: str
    name: str
    prune: str
    error: type[InfrastructureError]
    code: str

    def default_directory(self, environ: Mapping[str, str] | None = None) -> Path:
        """Return the location: from the variable, or the usual one for root and for other users."""
        environ = os.environ if environ is None else environ
        if named := environ.get(self.variable):
            return Path(named).absolute()
        if os.geteuid() == 0:
            return _OF_ROOT / self.directory
        data = Path(environ.get("XDG_DATA_HOME", ""))
        data = data if data.is_absolute() else home_directory(environ) / ".local/share"
        return data / "securebench" / self.directory

    def make(self, top: Path, modes: Mapping[Path, int]) -> None:
        """Create the directory ``top`` and the directories in it, each with exactly its mode whatever the umask.

        Raises like :meth:`explaining`, also if ``top`` belongs to another user, who could replace anything in it.
        """
        with self.explaining(top):
            top.mkdir(parents=True, exist_ok=True)
            status = top.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
                raise self._unusable(top, "it is not a directory of this user")
            for directory, mode in modes.items():
                directory.mkdir(mode=mode, parents=True, exist_ok=True)
                directory.chmod(mode)

    @contextmanager
    def explaining(self, top: Path) -> Iterator[None]:
        """Turn each ``OSError`` into :class:`DiskFullError` for a full disk, and into ``error`` otherwise."""
        try:
            yield
        except OSError as error:
            if error.errno in _FULL:
                raise self.disk_full(top, str(error.strerror)) from error
            raise self._unusable(top, str(error)) from error

    def disk_full(self, top: Path, problem: str) -> DiskFullError:
        """Return the error for a full disk."""
        return DiskFullError(
            f"{self.name} {top} has no room: {problem}",
            hint=f"{self.prune}; or set {self.variable} to a directory with more room",
        )

    def _unusable(self, top: Path, problem: str) -> InfrastructureError:
        return self.error(
            f"{self.name} {top} cannot be used: {problem}",
            code=self.code,
            hint=f"set {self.variable} to a directory of your own",
        )
