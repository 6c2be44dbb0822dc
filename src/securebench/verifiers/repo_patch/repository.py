"""The commit that a repository is at, read from its files: git is not asked."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from securebench.errors import MaterializationError

if TYPE_CHECKING:
    from securebench.patches.model import FileTree

_COMMIT = re.compile(rb"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_REFERENCE = re.compile(rb"ref: (refs/[A-Za-z0-9._/+-]{1,500})")
_MAX_STEPS: Final = 5
"""How often a reference may lead to another: git's own bound."""


def require_commit(pristine: FileTree, wanted: str) -> None:
    """Raise :class:`MaterializationError` (``base-commit-mismatch``) unless HEAD is at ``wanted``, which may be short.

    The image is the task's author's: it is the task that is wrong then, and no candidate is judged.
    """
    found = head_commit(pristine)
    if found is None or not found.startswith(wanted.lower()):
        state = f"is at {found}" if found else "is at no commit that can be read"
        raise MaterializationError(
            f"the repository in the image {state}, and the task's base_commit is {wanted}",
            code="base-commit-mismatch",
            hint="build the image from that commit, or name the commit that the image is at",
        )


def head_commit(pristine: FileTree) -> str | None:
    """Return the commit of HEAD, in full and lower case; ``None`` where ``.git`` is not there or cannot be read."""
    name = b"HEAD"
    for _ in range(_MAX_STEPS):
        text = _text(pristine, b".git/" + name)
        value = text if text is not None else _packed(pristine, name)
        if value is None:
            return None
        if _COMMIT.fullmatch(value):
            return value.decode("ascii")
        reference = _REFERENCE.fullmatch(value)
        if reference is None or b".." in reference[1]:
            return None
        name = reference[1]
    return None


def _text(pristine: FileTree, path: bytes) -> bytes | None:
    found = pristine.get(path)
    return None if found is None or found.link else found.content.strip()


def _packed(pristine: FileTree, name: bytes) -> bytes | None:
    """Return what ``.git/packed-refs`` has for ``name``."""
    text = _text(pristine, b".git/packed-refs") or b""
    for line in text.split(b"\n"):
        commit, _, reference = line.rstrip(b"\r").partition(b" ")
        if reference == name:
            return commit
    return None
