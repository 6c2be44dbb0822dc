"""Read the current commit of a repository from its files, without running git."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from securebench.errors import MaterializationError

if TYPE_CHECKING:
    from securebench.patches.model import FileTree

_COMMIT = re.compile(rb"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_REFERENCE = re.compile(rb"ref: (refs/[A-Za-z0-9._/+-]{1,500})")
_MAX_STEPS: Final = 5
"""How many references to read, including ``HEAD``. Git has the same limit."""


def require_commit(pristine: FileTree, commit: str) -> None:
    """Raise :class:`MaterializationError` (``base-commit-mismatch``) unless HEAD is at ``commit``.

    ``commit`` may be abbreviated. The image belongs to the task, so a mismatch is an error in the task and says nothing
    about a candidate.
    """
    found = head_commit(pristine)
    if found is None or not found.startswith(commit.lower()):
        state = f"is at {found}" if found else "has no readable HEAD commit"
        raise MaterializationError(
            f"the repository in the image {state}, but the task's 'base_commit' is {commit}",
            code="base-commit-mismatch",
            hint="build the image from that commit and keep '.git', or set 'base_commit' to the commit in the image",
        )


def head_commit(pristine: FileTree) -> str | None:
    """Return the full lower-case commit of HEAD, or ``None`` if it cannot be read from ``.git``."""
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
    """Return the commit of the reference ``name`` in ``.git/packed-refs``, if any."""
    text = _text(pristine, b".git/packed-refs") or b""
    for line in text.split(b"\n"):
        commit, _, reference = line.rstrip(b"\r").partition(b" ")
        if reference == name:
            return commit
    return None
