"""The text of a task's files, for redaction: bounded, and read only if a verifier's output is kept or shown."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from securebench.fs.safe_open import TreeRefusedError
from securebench.fs.walk import EntryKind, TreeLimits, walk_at
from securebench.limits import MIB

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from securebench.resources import Resource
    from securebench.tasks import AssetRoot

# A larger file is probably data. One line of such a file in a verifier's output reveals little.
MAX_FILE: Final = MIB // 4
"""The maximum size, in bytes, of a file that :func:`file_texts` reads."""
MAX_ALL: Final = MIB
"""The maximum total size of the files that one call of :func:`file_texts` reads, in bytes. The rest is skipped."""


def file_texts(resources: Iterable[Resource], root: AssetRoot | None) -> Iterator[str]:
    """Yield the texts of the files below ``root`` that ``resources`` refer to.

    Skips files that are unreadable, too large or not UTF-8, and everything beyond ``MAX_ALL``. The verifier reports
    unusable files itself; nothing here can change a verdict.
    """
    if root is None:
        return
    left = MAX_ALL
    for path in dict.fromkeys(file.path for resource in resources for file in resource.files):
        for content in _contents(root, path):
            left -= len(content)
            if left < 0:
                return
            with suppress(UnicodeDecodeError):
                yield content.decode("utf-8")


def _contents(root: AssetRoot, path: str) -> Iterator[bytes]:
    with suppress(TreeRefusedError, OSError):
        for entry in walk_at(root.directory, path, TreeLimits()):
            if entry.kind is EntryKind.FILE and entry.size <= MAX_FILE:
                yield b"".join(entry.chunks())
