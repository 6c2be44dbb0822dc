"""Where images are built, so that a build that fails, or is killed at any point, leaves nothing.

Each build has a directory and a token of its own, and holds a lock on that directory while it lives. What it makes in
the engine carries the token as a label. A directory without a living owner is what a killed build left: the next
build gives its token to be cleared, and removes it.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import stat
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from securebench.errors import ImageError
from securebench.images.build.bootstrap import PROGRAM, query

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_SEARCHABLE = 0o711
"""Package tools enter as users of their own."""


@dataclass(frozen=True, slots=True)
class BuildDirectory:
    """One build's place: ``directory`` for files, ``token`` for what it makes in the engine."""

    directory: Path
    token: str


def builds_directory() -> Path:
    """Return the directory of all builds of this user: on disk, since a memory file system may be too small."""
    return Path(os.environ.get("TMPDIR") or "/var/tmp") / f"securebench-build-{os.getuid()}"  # noqa: S108 - see _own


@contextmanager
def open_build_directory(clear: Callable[[str], None]) -> Iterator[BuildDirectory]:
    """Give a build its place, and ``clear`` and remove it afterwards, however the block ends.

    ``clear`` is given a token and removes from the engine what carries it and has no name. It is called for builds
    that were killed, too. Raises :class:`ImageError` (``build-directory-unsafe``).
    """
    base = builds_directory()
    _own(base)
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


def _own(base: Path) -> None:
    """Make ``base``, or make sure that nobody else did: it lies where every user may write."""
    with suppress(FileExistsError):
        base.mkdir(parents=True)
    status = base.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise ImageError(
            f"{base} belongs to someone else, so nothing is built there",
            code="build-directory-unsafe",
            hint="remove it, or set TMPDIR to a directory of your own",
        )
    base.chmod(_SEARCHABLE)


def _enter(base: Path) -> tuple[BuildDirectory, int]:
    with _locked(base):
        token = secrets.token_hex(8)
        directory = base / token
        directory.mkdir()
        directory.chmod(_SEARCHABLE)  # whatever the umask
        lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(lock, fcntl.LOCK_EX)
    return BuildDirectory(directory, token), lock


def _sweep(base: Path, clear: Callable[[str], None]) -> None:
    with _locked(base):
        for directory in sorted(path for path in base.iterdir() if path.is_dir()):
            if _is_abandoned(directory):
                clear(directory.name)
                _remove(directory)


def _is_abandoned(directory: Path) -> bool:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def _remove(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    if directory.exists() and shutil.which(PROGRAM):
        # Made in an ordinary user's namespace: files of subordinate users, which only such a namespace can remove.
        query((PROGRAM, "--unshare-helper", "rm", "-rf", *map(str, directory.iterdir())))
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _locked(base: Path) -> Iterator[None]:
    """Keep other builds of this user from opening or clearing a build directory meanwhile."""
    descriptor = os.open(base, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
