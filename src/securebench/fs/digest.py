"""The digest of a directory: names, contents, executable bits and links of everything in it."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Final

from securebench.fs.walk import EntryKind, Links, TreeLimits, TreeRules, walk

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from securebench.fs.walk import TreeEntry

_LIMITS: Final = TreeLimits(total_bytes=2**40, entries=10_000_000, depth=256)
"""Limits that allow an agent's directory with an interpreter and all its packages."""
_PYTHON_CACHE: Final = b"__pycache__"


def file_digest(path: Path) -> str:
    """Return the sha256 (hex) of a file's content. Raises ``OSError``."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def tree_digest(root: Path) -> str:
    """Return the sha256 (hex) of the directory ``root``. Times and owners do not change it; no link is followed.

    Raises :class:`TreeRefusedError` if ``root`` contains anything but readable files, directories and links. Also
    raises ``OSError``.
    """
    return _digest(root, TreeRules(links=Links.ANY, set_id=True), lambda entry: (b"link", entry.target))


def source_digest(root: Path) -> str:
    """Return the digest of the directory of a Python package, without the bytecode that Python writes.

    The digest is computed as by :func:`tree_digest`, but a link to a file counts as that file. The reason is that some
    installers install links to files in their cache. Raises the errors of :func:`tree_digest`.
    """
    root = root.resolve()

    def link_value(entry: TreeEntry) -> tuple[bytes, bytes]:
        target = root / os.fsdecode(entry.path)
        return (b"file", file_digest(target).encode()) if target.is_file() else (b"link", entry.target)

    skipped = lambda path: path.rpartition(b"/")[2] == _PYTHON_CACHE  # noqa: E731 - one line, used once
    return _digest(root, TreeRules(links=Links.ANY, set_id=True, skipped=skipped), link_value)


def _digest(root: Path, rules: TreeRules, link_value: Callable[[TreeEntry], tuple[bytes, bytes]]) -> str:
    total = hashlib.sha256()
    for entry in walk(root, _LIMITS, rules):
        kind, value = b"directory", b""
        if entry.kind is EntryKind.LINK:
            kind, value = link_value(entry)
        elif entry.kind is EntryKind.FILE:
            content = hashlib.sha256()
            for chunk in entry.chunks():
                content.update(chunk)
            kind, value = b"program" if entry.executable else b"file", content.hexdigest().encode()
        total.update(b"%s\0%s\0%s\0" % (kind, entry.path, value))  # no path or target contains NUL
    return total.hexdigest()
