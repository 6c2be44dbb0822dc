"""Trees of files, and changes to them. Paths are bytes, relative, of plain components parted by ``/``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class FileVersion:
    """A file, or a link (whose ``content`` is its target), as git would record it."""

    content: bytes
    executable: bool = False
    link: bool = False


Delta: TypeAlias = "Mapping[bytes, FileVersion | None]"
"""The changes from one tree to another: each changed path with its new version, ``None`` where it is gone.

Directories are there as long as something is in them, as in git. An unchanged path is not in it.
"""


class FileTree(Protocol):
    """A tree of files that is not changed any more."""

    def get(self, path: bytes) -> FileVersion | None:
        """Return the file or link at ``path``; ``None`` where there is none, or a directory."""
