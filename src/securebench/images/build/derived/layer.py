"""Writing an image layer as a tar archive that is always the same for the same content."""

from __future__ import annotations

import tarfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from securebench.fs.tar_reader import BLOCK

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MTIME: Final = 1_577_836_800
"""The modification time of all entries: 2020-01-01, so that a layer does not depend on its build time.

It is not 0, because zip archives cannot store times before 1980.
"""

END: Final = bytes(2 * BLOCK)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerEntry:
    """One member of a layer, without its content.

    ``kind`` is a member type of :mod:`tarfile`, such as ``REGTYPE``. ``size`` is the size of a file's content in bytes.
    """

    path: bytes
    kind: bytes = tarfile.REGTYPE
    mode: int = 0o644
    owner: tuple[int, int] = (0, 0)
    size: int = 0
    link: bytes = b""


def written(entry: LayerEntry, content: Iterable[bytes] = ()) -> Iterator[bytes]:
    """Yield a member's bytes. Content is truncated or padded to the size of the entry."""
    yield _header(entry)
    left = entry.size
    for piece in content:
        yield piece[:left]
        left -= min(len(piece), left)
        if not left:
            break
    yield bytes(left + -entry.size % BLOCK)  # padding, even for a file that shrank meanwhile


def _header(entry: LayerEntry) -> bytes:
    info = tarfile.TarInfo(entry.path.decode("utf-8", "surrogateescape"))
    info.type, info.mode, info.size, info.mtime = entry.kind, entry.mode, entry.size, MTIME
    info.uid, info.gid = entry.owner
    info.linkname = entry.link.decode("utf-8", "surrogateescape")
    return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")
