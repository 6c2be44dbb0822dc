"""The build context of a Dockerfile: a directory as a tar archive, except what ``.dockerignore`` excludes."""

from __future__ import annotations

import os
import tarfile
from typing import TYPE_CHECKING, Final

from docker.utils.build import Pattern

from securebench.errors import ConfigError
from securebench.fs.safe_open import OPEN_DIRECTORY, opened
from securebench.fs.walk import EntryKind
from securebench.images.build.derived.host_tree import content, walk
from securebench.images.build.derived.layer import END, LayerEntry, written
from securebench.printable import printable_name
from securebench.strict_input.files import read_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from securebench.fs.walk import TreeEntry

IGNORE_FILE: Final = ".dockerignore"
DOCKERFILE: Final = ".securebench.Dockerfile"
"""The name of the rewritten Dockerfile in the context. The engine removes it before anything is copied."""

_ADDED: Final = frozenset((os.fsencode(IGNORE_FILE), os.fsencode(DOCKERFILE)))
_MAX_IGNORE: Final = 1024 * 1024


def context_archive(context: Path, dockerfile: str) -> Iterator[bytes]:
    """Yield the build context as a tar archive in pieces. The text ``dockerfile`` becomes the file :data:`DOCKERFILE`.

    Symbolic links are kept. Raises :class:`ConfigError` (``recipe-invalid``) if ``context`` is not a directory, or
    contains anything but files, directories and links (excluded paths are not checked). Also raises the errors of
    :func:`read_text` for ``.dockerignore``, and those of :func:`walk` and :func:`content`.
    """
    ignored = _Ignored(_patterns(context))
    yield from _text(DOCKERFILE, dockerfile)
    yield from _text(IGNORE_FILE, f"{DOCKERFILE}\n{IGNORE_FILE}\n")
    try:
        with opened(context, OPEN_DIRECTORY) as top:
            for found in walk(top, ignored.entirely):
                if found.path not in _ADDED and not ignored(found.path):
                    yield from _member(found)
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigError(f"{context} is not a directory", code="recipe-invalid") from None
    yield END


class _Ignored:
    """The paths that patterns exclude. The last pattern that matches a path or a directory above it decides."""

    def __init__(self, patterns: list[str]) -> None:
        self._patterns = [found for found in map(Pattern, patterns) if found.dirs]
        self._excepts = any(found.exclusion for found in self._patterns)

    def __call__(self, path: bytes) -> bool:
        """Return whether this path is excluded."""
        parts = os.fsdecode(path).split("/")
        above = ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]
        ignored = False
        for pattern in self._patterns:
            if any(pattern.match(directory) for directory in above):
                ignored = not pattern.exclusion
        return ignored

    def entirely(self, path: bytes) -> bool:
        """Return whether this directory is excluded with all of its content, so that it need not be read.

        Always returns ``False`` if a pattern makes an exception (``!``).
        """
        return bool(self._patterns) and not self._excepts and path not in _ADDED and self(path)


def _patterns(context: Path) -> list[str]:
    """Return the patterns in ``.dockerignore``: its lines without comments and empty lines."""
    path = context / IGNORE_FILE
    if not path.is_file():
        return []
    lines = (line.strip() for line in read_text(path, IGNORE_FILE, _MAX_IGNORE)[0].split("\n"))
    return [line for line in lines if line and not line.startswith("#")]


def _text(name: str, text: str) -> Iterator[bytes]:
    data = text.encode()
    return written(LayerEntry(path=name.encode(), size=len(data)), (data,))


def _member(found: TreeEntry) -> Iterator[bytes]:
    if found.kind is EntryKind.DIRECTORY:
        return written(LayerEntry(path=found.path, kind=tarfile.DIRTYPE, mode=0o755))
    if found.kind is EntryKind.LINK:
        return written(LayerEntry(path=found.path, kind=tarfile.SYMTYPE, mode=0o777, link=found.target))
    if found.kind is EntryKind.FILE:
        entry = LayerEntry(path=found.path, mode=0o755 if found.executable else 0o644, size=found.size)
        return written(entry, content(found))
    raise ConfigError(f"{printable_name(found.path)!r} is not a file, directory or link", code="recipe-invalid")
