"""Archives that lead out of their directory, contradict themselves or grow without bound."""

from __future__ import annotations

import io
import tarfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

TOP: Final = "workspace"
"""The directory that contains all members of an honest archive."""


@dataclass(frozen=True, slots=True)
class ArchiveAttack:
    """A tar archive of a directory: its entry in the catalogue of attacks, a name, and a function that makes it.

    The archive must be refused, or unpacked without an effect outside of the target directory. The function gets the
    absolute path of a directory outside of the target, in which some archives try to write.
    """

    entry: str
    name: str
    data: Callable[[str], bytes]


def member(name: str, data: bytes = b"x", *, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    """Return the header of a member whose content has the length of ``data``."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size, info.mode = kind, link, len(data), 0o644
    return info


def archived(members: Iterable[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    """Return an archive of ``members``."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for info, data in members:
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def _file(name: str, data: bytes = b"x") -> tuple[tarfile.TarInfo, bytes]:
    return member(name, data), data


def _special(name: str, kind: bytes, link: str = "") -> tuple[tarfile.TarInfo, bytes]:
    return member(name, b"", kind=kind, link=link), b""


def _sparse_header(size: int) -> bytes:
    """Return a header that announces ``size`` bytes, which do not follow."""
    info = member(f"{TOP}/big", b"")
    info.size = size
    return info.tobuf(tarfile.GNU_FORMAT)


HONEST: Final = archived([_special(TOP, tarfile.DIRTYPE), _file(f"{TOP}/a")])
"""A harmless archive, which must be unpacked."""

ATTACKS: Final = (
    ArchiveAttack(
        "H13", "a parent", lambda _: archived([_special(TOP, tarfile.DIRTYPE), _file(f"{TOP}/../../escaped")])
    ),
    ArchiveAttack("H13", "an absolute path", lambda outside: archived([_file(f"{outside}/escaped")])),
    ArchiveAttack("H13", "an empty component", lambda _: archived([_file(f"{TOP}//../escaped")])),
    ArchiveAttack(
        "H13",
        "a file through a link",
        lambda _: archived([_special(f"{TOP}/link", tarfile.SYMTYPE, "../.."), _file(f"{TOP}/link/escaped")]),
    ),
    ArchiveAttack(
        "H13",
        "a file through a link to the root",
        lambda outside: archived([_special(f"{TOP}/link", tarfile.SYMTYPE, outside), _file(f"{TOP}/link/escaped")]),
    ),
    ArchiveAttack(
        "H13",
        "a file over a link",
        lambda _: archived([_special(f"{TOP}/escaped", tarfile.SYMTYPE, "../escaped"), _file(f"{TOP}/escaped")]),
    ),
    ArchiveAttack(
        "H13", "a hard link to the host", lambda _: archived([_special(f"{TOP}/l", tarfile.LNKTYPE, "/etc/passwd")])
    ),
    ArchiveAttack(
        "H13", "a hard link to a parent", lambda _: archived([_special(f"{TOP}/l", tarfile.LNKTYPE, f"{TOP}/../x")])
    ),
    ArchiveAttack("H13", "a device", lambda _: archived([_special(f"{TOP}/device", tarfile.CHRTYPE)])),
    ArchiveAttack("H14", "an announced terabyte", lambda _: _sparse_header(1 << 40)),
    ArchiveAttack("H14", "many files", lambda _: archived(_file(f"{TOP}/{number}", b"") for number in range(60_000))),
    ArchiveAttack("H14", "a deep tree", lambda _: archived([_file(f"{TOP}/{'d/' * 400}x")])),
    ArchiveAttack("H14", "cut short", lambda _: HONEST[:700]),
)
