"""Unpack a bundle from a stranger into a private temporary directory."""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING, Final

from securebench.errors import ConfigError, ImageError, SourceLocation, StorageError
from securebench.fs.archives import ArchiveLimits
from securebench.fs.durable import disk_hint
from securebench.fs.streams import chunks, decompressed
from securebench.fs.tar_reader import MemberKind, TarReader
from securebench.printable import printable_name
from securebench.results.bundle import write_bundle
from securebench.strict_input.files import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterator

    from securebench.fs.tar_reader import Member

_LIMITS: Final = ArchiveLimits()
_PART: Final = re.compile(r"(?!\.\.?\Z)[A-Za-z0-9._-]{1,255}")
"""A component of a path in a bundle. It cannot be ``..``, so no path leads out of the unpacked directory."""
_MAX_PARTS: Final = 8


@contextmanager
def unpacked_bundle(path: Path) -> Iterator[Path]:
    """Yield the directory of the run or suite in the bundle ``path``. This directory is removed at the end.

    Raises :class:`ConfigError`: the errors of :func:`open_regular`, or ``bundle-damaged`` if the archive is damaged,
    contains anything but plain files and directories, or exceeds the limits of :class:`ArchiveLimits`. Raises
    :class:`StorageError` if the disk is full or fails.
    """
    with TemporaryDirectory(prefix="securebench-bundle-") as name:
        root = Path(name).resolve()
        try:
            with open_regular(path, "bundle", follow=True) as file:
                tops = _unpack(TarReader(_archive(file), "the bundle", 8192), root)
        except ImageError as error:
            raise _damaged(error.message, path) from None
        except OSError as error:
            raise StorageError(
                f"cannot unpack the bundle to {root}: {error.strerror or error}",
                hint=f"{disk_hint(error.errno)}, or set TMPDIR to a directory on another disk",
            ) from error
        if len(tops) != 1:
            raise _damaged(f"it has {len(tops)} top-level entries, expected one directory", path)
        try:
            yield root / tops.pop()
        except ConfigError as error:
            raise _in_bundle(error, root, path) from error


def require_exact(path: Path, directory: Path) -> None:
    """Raise :class:`ConfigError` unless the archive in ``path`` is the one that SecureBench writes for ``directory``.

    Programs read unusual archives in different ways. Another program could unpack files that were not checked here.
    """
    with Path(os.devnull).open("wb") as nowhere:
        written = write_bundle(directory, nowhere).digest
    found = hashlib.sha256()
    with open_regular(path, "bundle", follow=True) as file:
        for piece in _archive(file):
            found.update(piece)
    if found.hexdigest() != written:
        raise _damaged("'securebench bundle' would write a different archive of these files", path)


def _archive(file: IO[bytes]) -> Iterator[bytes]:
    return decompressed(chunks(file), _LIMITS, "the bundle")


def _unpack(archive: TarReader, root: Path) -> set[str]:
    """Unpack the members, and return the top-level names."""
    tops: set[str] = set()
    for number, member in enumerate(archive):
        if number >= _LIMITS.members:
            raise ImageError(f"it has more than {_LIMITS.members} members", code="image-too-large")
        parts = _parts(member)
        tops.add(parts[0])
        place = root.joinpath(*parts)
        try:
            if member.kind is MemberKind.DIRECTORY:
                place.mkdir(mode=0o700)
                continue
            with place.open("xb") as file:
                for piece in archive.content():
                    file.write(piece)
        except (FileExistsError, FileNotFoundError, NotADirectoryError):
            problem = "occurs twice in the archive, or no earlier entry creates its parent directory"
            raise ImageError(f"{printable_name(member.path)} {problem}", code="image-malformed") from None
    return tops


def _parts(member: Member) -> list[str]:
    """Return the parts of a member's path. Raises :class:`ImageError` if a bundle may not contain this member."""
    parts = member.path.removesuffix(b"/").decode("utf-8", "backslashreplace").split("/")
    problem = ""
    if member.kind not in {MemberKind.FILE, MemberKind.DIRECTORY}:
        problem = "is not a regular file or directory"
    elif len(parts) > _MAX_PARTS or not all(map(_PART.fullmatch, parts)):
        problem = "is not a path that is allowed in a bundle"
    if problem:
        raise ImageError(f"{printable_name(member.path)} {problem}", code="image-malformed")
    return parts


def _in_bundle(error: ConfigError, root: Path, path: Path) -> ConfigError:
    """Return ``error`` with paths in the bundle instead of those in the temporary directory ``root``."""

    def named(text: str) -> str:
        return text.replace(f"{root}/", f"{path}: ")

    problems = [
        replace(
            problem,
            message=named(problem.message),
            location=problem.location and replace(problem.location, file=named(problem.location.file)),
        )
        for problem in error.problems
    ]
    return ConfigError(problems=problems)


def _damaged(problem: str, path: Path) -> ConfigError:
    return ConfigError(
        f"the bundle is damaged: {problem}",
        code="bundle-damaged",
        hint="ask its author for another copy, made with 'securebench bundle'",
        location=SourceLocation(str(path)),
    )
