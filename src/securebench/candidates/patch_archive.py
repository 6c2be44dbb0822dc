"""The sealed form of a patch: a tar archive in the format of image layers.

It contains changed files and links, and an empty file ``.wh.NAME`` for each removed entry. Equal changes give equal
bytes.
"""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Final

from securebench.errors import ImageError, StorageError
from securebench.fs.safe_open import TreeRefusal, TreeRefusedError
from securebench.fs.tar_reader import MemberKind, TarReader
from securebench.fs.tar_writer import TarWriter
from securebench.fs.walk import MAX_OFFENDERS
from securebench.limits import MIB
from securebench.patches.model import FileVersion
from securebench.printable import printable_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from securebench.fs.tar_reader import Member
    from securebench.patches.model import Delta

GONE: Final = b".wh."
"""The prefix that marks a removed entry (a whiteout)."""
_EXECUTABLE: Final = 0o100


def write_patch(delta: Delta, output: IO[bytes]) -> TarWriter:
    """Write ``delta`` to ``output``, and return the writer, which has the digest and the size of the archive.

    Raises :class:`TreeRefusedError` if a name in a path begins with the whiteout prefix.
    """
    offenders = [
        f"{printable_name(path)}: the name is reserved for removed files" for path in sorted(delta) if _is_mark(path)
    ]
    if offenders:
        raise TreeRefusedError(TreeRefusal.UNSAFE, *offenders[:MAX_OFFENDERS])
    with TarWriter(output) as archive:
        for path, version in sorted(delta.items()):
            if version is None:
                parent, slash, name = path.rpartition(b"/")
                archive.file(parent + slash + GONE + name, 0, ())
            elif version.link:
                archive.link(path, version.content)
            else:
                archive.file(path, len(version.content), (version.content,), 0o755 if version.executable else 0o644)
    return archive


def read_patch(pieces: Iterable[bytes]) -> Delta:
    """Read what :func:`write_patch` wrote.

    Raises :class:`StorageError` (``candidate-altered``) for a damaged archive, and for unexpected or duplicate entries.
    """
    delta: dict[bytes, FileVersion | None] = {}
    reader = TarReader(pieces, "the sealed candidate", MIB)
    try:
        for member in reader:
            path, version = _read_member(member, b"".join(reader.content()))
            if path in delta:
                raise _altered(f"duplicate entry {printable_name(path)}")
            delta[path] = version
    except ImageError as error:
        raise _altered(error.message) from None
    return delta


def _read_member(member: Member, content: bytes) -> tuple[bytes, FileVersion | None]:
    parts = member.path.split(b"/")
    if {b"", b".", b".."} & set(parts) or member.kind not in {MemberKind.FILE, MemberKind.SYMLINK}:
        raise _altered(f"unexpected entry {printable_name(member.path)}")
    *parents, name = parts
    if name.startswith(GONE):
        return b"/".join((*parents, name.removeprefix(GONE))), None
    if member.kind is MemberKind.SYMLINK:
        return member.path, FileVersion(member.link, link=True)
    return member.path, FileVersion(content, executable=bool(member.mode & _EXECUTABLE))


def _is_mark(path: bytes) -> bool:
    return any(name.startswith(GONE) for name in path.split(b"/"))


def _altered(problem: str) -> StorageError:
    return StorageError(
        f"the sealed patch was altered: {problem}",
        code="candidate-altered",
        hint="do not use this run directory as evidence; run the task again in a new one",
    )
