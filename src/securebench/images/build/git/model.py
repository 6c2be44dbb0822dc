"""The files of one commit, as git has them."""

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
"""Of all files together: they are held in memory. The largest real repositories of benchmarks have a third of it."""
MAX_DEPTH: Final = 128


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file, or a link whose target is its data. ``mode`` is one of git's: FILE, EXECUTABLE or LINK."""

    mode: int
    data: bytes


@dataclass(frozen=True, slots=True)
class SourceTree:
    """Files by their paths, relative, with ``/``. ``submodules`` are paths of repositories that are not in it."""

    files: Mapping[bytes, SourceFile]
    submodules: tuple[bytes, ...] = ()


def check_path(path: bytes, what: str) -> None:
    """Raise :class:`ImageError` (``source-unusable``) for a path that leads out, or into a repository's own files."""
    parts = path.split(b"/")
    # A repository inside a repository would be a history that nobody looks at.
    bad = any(part in {b"", b".", b".."} or part.lower() == b".git" for part in parts)
    if bad or b"\0" in path or len(parts) > MAX_DEPTH:
        raise unusable(what, f"it has a file {printable_name(path)!r}")


def unusable(what: str, problem: str, hint: str = "") -> ImageError:
    """Return the error for a source that no image can be made of."""
    return ImageError(
        f"{what}: {problem}",
        code="source-unusable",
        hint=hint or "use another release or commit, or bring the files with 'files'",
    )
