"""File trees and changes to them. Paths are bytes: relative, with plain components separated by ``/``."""

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
"""The changes from one tree to another: each changed path with its new version, ``None`` if it was removed.

As in git, directories exist as long as they contain something. Unchanged paths are not included.
"""


class FileTree(Protocol):
    """An immutable file tree."""

    def get(self, path: bytes) -> FileVersion | None:
        """Return the file or link at ``path``; ``None`` if it does not exist or is a directory."""
