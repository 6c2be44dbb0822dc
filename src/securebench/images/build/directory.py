"""Build directories: what a failed or killed build leaves is removed, except for its log.

Each build has its own directory and token, and holds a lock on the directory while it runs. Whatever it creates in the
engine carries the token as a label. An unlocked directory was left by a killed build: the next build removes it,
and the containers and unnamed images that carry its token.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from securebench.errors import ImageError
from securebench.fs.locks import locked, take, take_now
from securebench.images.build.bootstrap import PROGRAM, query

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_SEARCHABLE = 0o711
"""The mode of build directories: package tools run as other users, who must be able to enter."""


@dataclass(frozen=True, slots=True)
class BuildDirectory:
    """The directory of one build, and the token with which the build labels what it creates in the engine."""

    directory: Path
    token: str


def builds_directory() -> Path:
    """Return the directory of all builds of this user, by default on disk: a tmpfs may be too small."""
    return Path(os.environ.get("TMPDIR") or "/var/tmp") / f"securebench-build-{os.getuid()}"  # noqa: S108 - see _create_base


@contextmanager
def open_build_directory(clear: Callable[[str], None]) -> Iterator[BuildDirectory]:
    """Yield a new build directory. At the end of the block, call ``clear`` with its token and remove the directory.

    ``clear`` receives a token. It removes from the engine the containers and unnamed images that carry this token.
    It is also called for builds that were killed. Raises :class:`ImageError` (``build-directory-unsafe``).
    """
    base = builds_directory()
    _create_base(base)
    _sweep(base, clear)
    build_directory, lock = _enter(base)
    try:
        yield build_directory
    finally:
        try:
            clear(build_directory.token)
        finally:
            _remove(build_directory.directory)
            os.close(lock)


def _create_base(base: Path) -> None:
    """Create ``base``.

    Other users may write to its parent, so raise an error if ``base`` is not a directory or belongs to another user.
    """
    with suppress(FileExistsError):
        base.mkdir(parents=True)
    status = base.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise ImageError(
            f"{base} is not a directory of this user, so it is not used",
            code="build-directory-unsafe",
            hint="remove it, or set TMPDIR to a directory that you own",
        )
    base.chmod(_SEARCHABLE)


def _enter(base: Path) -> tuple[BuildDirectory, int]:
    with locked(base):
        token = secrets.token_hex(8)
        directory = base / token
        directory.mkdir()
        directory.chmod(_SEARCHABLE)  # regardless of the umask
        lock = take(directory)
    return BuildDirectory(directory, token), lock


def _sweep(base: Path, clear: Callable[[str], None]) -> None:
    with locked(base):
        for directory in sorted(path for path in base.iterdir() if path.is_dir() and not path.is_symlink()):
            if (lock := take_now(directory)) is not None:
                os.close(lock)  # no other build can lock it: this one holds the lock of ``base``
                clear(directory.name)
                _remove(directory)


def _remove(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    if directory.exists() and shutil.which(PROGRAM):
        # The remaining files were created in a user namespace. Their owners are subordinate ids, so they can only be
        # removed in such a namespace.
        query((PROGRAM, "--unshare-helper", "rm", "-rf", *map(str, directory.iterdir())))
        shutil.rmtree(directory, ignore_errors=True)
