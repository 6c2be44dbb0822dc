"""Unpack the archive of an npm package. It may contain only regular files below one directory."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from securebench.agents.progress import InstallStage, Teller
from securebench.errors import ImageError, InfrastructureError
from securebench.fs.archives import ArchiveLimits
from securebench.fs.durable import sync_directory, write_all
from securebench.fs.safe_open import OPEN_FILE, opened
from securebench.fs.streams import chunks, decompressed
from securebench.fs.tar_reader import MemberKind, TarReader
from securebench.limits import GIB
from securebench.printable import printable_name
from securebench.strict_input.json_text import UnfitJsonError, decode_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from securebench.agents.progress import OnProgress
    from securebench.fs.tar_reader import Member

LIMITS: Final = ArchiveLimits(bytes=4 * GIB, members=10_000, depth=24, header=64 * 1024)
DESCRIPTION: Final = "package.json"

_TOP: Final = b"package"
"""The top directory of every npm package."""
_MAX_PATH: Final = 1024
_MAX_NAME: Final = 255
_MAX_DESCRIPTION: Final = 1024 * 1024
_PLAIN: Final = 0o444
_EXECUTABLE: Final = 0o555
_READABLE: Final = 0o755
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class UnpackedFile:
    """A file by its path in the package, with its size in bytes and its sha256 (hex)."""

    path: str
    size: int
    sha256: str


def unpack(archive: Path, root: Path, what: str, on_progress: OnProgress) -> tuple[UnpackedFile, ...]:
    """Unpack ``archive`` into the new directory ``root``. All users may read its files, and none may write them.

    Raises :class:`InfrastructureError` (``agent-unusable``), and ``OSError`` of the disk's trouble.
    """
    root.mkdir(mode=_READABLE)
    root.chmod(_READABLE)  # whatever the umask is
    with opened(archive, OPEN_FILE) as descriptor, os.fdopen(descriptor, "rb", buffering=0, closefd=False) as file:
        teller = Teller(on_progress, what, InstallStage.UNPACKING)
        try:
            return tuple(_Unpacking(root, what, teller).run(chunks(file)))
        except ImageError as error:
            raise unusable(what, error.message) from None


def describe(root: Path, what: str) -> tuple[str, str]:
    """Return the name and the version in the ``package.json`` of an unpacked package.

    Raises :class:`InfrastructureError` (``agent-unusable``).
    """
    try:
        with opened(root / DESCRIPTION, OPEN_FILE) as descriptor, os.fdopen(descriptor, "rb", closefd=False) as file:
            value = decode_json(file.read(_MAX_DESCRIPTION).decode("utf-8"))[0]
    except (FileNotFoundError, UnfitJsonError, UnicodeDecodeError):
        value = None
    found = (value.get("name"), value.get("version")) if isinstance(value, dict) else (None, None)
    if not isinstance(found[0], str) or not isinstance(found[1], str):
        raise unusable(what, f"it has no {DESCRIPTION} that names it")
    return found[0], found[1]


def unusable(what: str, why: str) -> InfrastructureError:
    """Return the error for an archive that is not a valid package."""
    return InfrastructureError(
        f"the archive of {what} cannot be used: {why}",
        code="agent-unusable",
        hint="the archive was discarded; use another version, or the archive from the public registry",
    )


class _Unpacking:
    """Creates every directory below ``root`` itself and never a link, so that no path can lead outside."""

    def __init__(self, root: Path, what: str, teller: Teller) -> None:
        self._root = root
        self._what = what
        self._teller = teller
        self._made = {root}

    def run(self, pieces: Iterable[bytes]) -> Iterator[UnpackedFile]:
        reader = TarReader(decompressed(pieces, LIMITS, self._what), self._what, LIMITS.header)
        for number, member in enumerate(reader, start=1):
            if number > LIMITS.members:
                raise unusable(self._what, f"it has more than {LIMITS.members} members")
            parts = self._parts(member)
            if member.kind is MemberKind.FILE:
                yield self._file(parts, member, reader.content())
        for directory in self._made:
            sync_directory(directory)

    def _parts(self, member: Member) -> list[str]:
        """Return the path below the top directory. Refuses invalid paths and types."""
        path = member.path
        parts = path.removesuffix(b"/").split(b"/") if member.kind is MemberKind.DIRECTORY else path.split(b"/")
        odd = parts[0] != _TOP or any(part in {b"", b".", b".."} or len(part) > _MAX_NAME for part in parts)
        text = path.decode("utf-8", "replace")
        if odd or len(path) > _MAX_PATH or len(parts) > LIMITS.depth or "\ufffd" in text or not text.isprintable():
            raise unusable(self._what, f"it contains an invalid path: {printable_name(path)!r}")
        if member.kind not in {MemberKind.FILE, MemberKind.DIRECTORY}:
            raise unusable(
                self._what, f"it contains an entry that is neither a file nor a directory: {printable_name(path)!r}"
            )
        return [os.fsdecode(part) for part in parts[1:]]

    def _file(self, parts: list[str], member: Member, content: Iterator[memoryview]) -> UnpackedFile:
        if not parts:
            raise unusable(self._what, "its top directory is a file")
        path = "/".join(parts)
        mode = _EXECUTABLE if member.mode & 0o100 else _PLAIN
        digest = hashlib.sha256()
        try:
            directory = self._directory(parts[:-1])
            with opened(directory / parts[-1], _CREATE) as descriptor:
                for piece in content:
                    digest.update(piece)
                    write_all(descriptor, piece)
                    self._teller.add(len(piece))
                os.fchmod(descriptor, mode)
                os.fsync(descriptor)
        except (FileExistsError, NotADirectoryError):
            raise unusable(self._what, f"it contains conflicting entries for one path: {path!r}") from None
        return UnpackedFile(path, member.size, digest.hexdigest())

    def _directory(self, parts: list[str]) -> Path:
        here = self._root
        for part in parts:
            here /= part
            if here not in self._made:
                here.mkdir(mode=_READABLE)
                here.chmod(_READABLE)
                self._made.add(here)
        return here
