"""Inspect the archive of a program. It may contain only regular files and directories, all below one directory."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from securebench.agents.model import TOP
from securebench.errors import ImageError, InfrastructureError
from securebench.fs.archives import ArchiveLimits
from securebench.fs.safe_open import OPEN_FILE, opened
from securebench.fs.streams import Digester, chunks, decompressed
from securebench.fs.tar_reader import MemberKind, TarReader
from securebench.limits import GIB
from securebench.printable import printable_name
from securebench.strict_input.json_text import UnfitJsonError, decode_json

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.fs.tar_reader import Member

LIMITS: Final = ArchiveLimits(bytes=4 * GIB, members=50_000, depth=24, header=64 * 1024)
_DESCRIPTION: Final = "package.json"
_MAX_PATH: Final = 1024
_MAX_NAME: Final = 255
_MAX_DESCRIPTION: Final = 1024 * 1024
_WHITEOUT: Final = b".wh."
"""The prefix of names that mark removed files in a layer of an image."""
_READABLE: Final = {MemberKind.FILE: 0o444, MemberKind.DIRECTORY: 0o555}
_SET_ID: Final = 0o7000
_FORM: Final = (
    "expected a tar archive, compressed or not, with regular files below one directory, as 'tar -czf NAME.tgz NAME' or "
    "'npm pack' writes it"
)
_LINKS: Final = "expected only files and directories: to replace links with their files, pack with 'tar --dereference'"
_MODES: Final = "before you pack the archive, run 'chmod -R a+rX,u-s,g-s,-t' on its directory"


@dataclass(frozen=True, slots=True)
class Package:
    """The content of an archive. ``digest`` is the digest of the uncompressed tar archive.

    ``name`` and ``version`` are the values in ``package.json``. They are empty if the archive is not an npm package.
    ``top`` is the directory that contains all files. Their paths are relative to it.
    """

    name: str
    version: str
    top: str
    files: frozenset[str]
    executables: frozenset[str]
    digest: str


def inspect(archive: Path, what: str, *, is_npm: bool = True) -> Package:
    """Check a whole archive, and return its content. ``what`` names it in errors.

    An npm package must have a ``package.json``.

    Raises :class:`InfrastructureError` (``agent-unusable``) and ``OSError``.
    """
    digester = Digester()
    inspection = _Inspection(what, TOP if is_npm else "")
    with opened(archive, OPEN_FILE) as descriptor, os.fdopen(descriptor, "rb", buffering=0, closefd=False) as file:
        try:
            reader = TarReader(digester.through(decompressed(chunks(file), LIMITS, what)), what, LIMITS.header)
            for number, member in enumerate(reader, start=1):
                if number > LIMITS.members:
                    raise unusable(what, f"it has more than {LIMITS.members} members")
                path = inspection.add(member)
                if path == _DESCRIPTION and member.size <= _MAX_DESCRIPTION:
                    inspection.description = b"".join(reader.content())
        except ImageError as error:
            raise unusable(what, error.message) from None
    name, version = _describe(inspection.description, what) if is_npm else ("", "")
    files, executables = frozenset(inspection.files), frozenset(inspection.executables)
    return Package(name, version, inspection.top, files, executables, digester.digest)


def unusable(what: str, why: str, hint: str = _FORM) -> InfrastructureError:
    """Return the error for an archive that is not a valid package."""
    return InfrastructureError(f"the archive of {what} cannot be used: {why}", code="agent-unusable", hint=hint)


class _Inspection:
    """The members checked so far. A path may not occur twice, unless all its entries are directories."""

    def __init__(self, what: str, top: str) -> None:
        self.description = b""
        self.executables: set[str] = set()
        self.files: set[str] = set()
        self.top = top
        self._what = what
        self._directories: set[str] = set()

    def add(self, member: Member) -> str:
        """Check a member, and return its path below the top directory, empty for that directory itself."""
        if member.kind not in _READABLE:
            raise self._unusable("an entry that is neither a file nor a directory", member.path, _LINKS)
        parts = self._parts(member)
        readable = _READABLE[member.kind]
        if member.mode & readable != readable or member.mode & _SET_ID:
            problem = "an entry that is not readable by all users, or that has a setuid, setgid or sticky bit"
            raise self._unusable(problem, member.path, _MODES)
        path = "/".join(parts)
        above = {"/".join(parts[:depth]) for depth in range(len(parts))}
        is_file = member.kind is MemberKind.FILE
        if above & self.files or path in self.files or (is_file and path in self._directories | {""}):
            raise self._unusable("conflicting entries for one path", member.path)
        (self.files if is_file else self._directories).add(path)
        self._directories |= above
        if is_file and member.mode & 0o111:
            self.executables.add(path)
        return path

    def _parts(self, member: Member) -> list[str]:
        """Return the parts of the path below the top directory. Refuses invalid paths."""
        path = member.path
        parts = path.removesuffix(b"/").split(b"/") if member.kind is MemberKind.DIRECTORY else path.split(b"/")
        self.top = self.top or parts[0].decode("utf-8", "replace")
        if parts[0] != self.top.encode():
            raise self._unusable(f"an entry outside its top-level directory {self.top!r}", path)
        odd = any(part in {b"", b".", b".."} or len(part) > _MAX_NAME or part.startswith(_WHITEOUT) for part in parts)
        text = path.decode("utf-8", "replace")
        if odd or len(path) > _MAX_PATH or len(parts) > LIMITS.depth or "\ufffd" in text or not text.isprintable():
            raise self._unusable("an invalid path", path)
        return [os.fsdecode(part) for part in parts[1:]]

    def _unusable(self, problem: str, path: bytes, hint: str = _FORM) -> InfrastructureError:
        return unusable(self._what, f"it contains {problem}: {printable_name(path)!r}", hint)


def _describe(description: bytes, what: str) -> tuple[str, str]:
    try:
        value = decode_json(description.decode("utf-8"))[0]
    except (UnfitJsonError, UnicodeDecodeError):
        value = None
    name, version = (value.get("name"), value.get("version")) if isinstance(value, dict) else (None, None)
    if not isinstance(name, str) or not isinstance(version, str):
        hint = "expected the archive of an npm package, as 'npm pack' writes it"
        raise unusable(what, f"it has no {_DESCRIPTION} with a name and a version", hint)
    return name, version
