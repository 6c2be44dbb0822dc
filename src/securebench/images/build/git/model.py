"""The files of one commit, with their paths and modes in git."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from securebench.errors import ImageError
from securebench.printable import printable_name

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE: Final = 0o100644
EXECUTABLE: Final = 0o100755
LINK: Final = 0o120000
DIRECTORY: Final = 0o040000
GITLINK: Final = 0o160000

MAX_FILES: Final = 200_000
MAX_BYTES: Final = 1024**3
"""The maximum size of all files together, in bytes. They are all held in memory.

Each of the largest benchmark repositories needs about a third of this.
"""
MAX_DEPTH: Final = 128


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file, or a symbolic link with its target as data. ``mode`` is FILE, EXECUTABLE or LINK, as in git."""

    mode: int
    data: bytes


@dataclass(frozen=True, slots=True)
class SourceTree:
    """Files by their relative paths, as in git. ``submodules`` are paths of submodules, whose files are missing."""

    files: Mapping[bytes, SourceFile]
    submodules: tuple[bytes, ...] = ()


def check_path(path: bytes, what: str) -> None:
    """Raise :class:`ImageError` (``source-unusable``) for an unsafe path.

    Unsafe paths lead out of the tree or into a ``.git`` directory, contain null bytes, contain a part that is empty or
    ``.``, or are too deep.
    """
    parts = path.split(b"/")
    # A nested repository would bring history that nothing checks.
    bad = any(part in {b"", b".", b".."} or part.lower() == b".git" for part in parts)
    if bad or b"\0" in path or len(parts) > MAX_DEPTH:
        raise unusable(what, f"it has the unsafe path {printable_name(path)!r}")


def unusable(what: str, problem: str, hint: str = "") -> ImageError:
    """Return the error for a source that cannot be used in an image."""
    return ImageError(
        f"{what}: {problem}",
        code="source-unusable",
        hint=hint or "use another release or commit, or add a directory with the files to the recipe's 'files'",
    )
