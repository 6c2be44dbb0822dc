"""Compute where the links of a sealed workspace lead in a checker's sandbox, without following them on the host."""

from __future__ import annotations

import os
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from securebench.errors import FailureReason
from securebench.pack_paths import LANE_ROOTS, folded
from securebench.resources import Visibility
from securebench.verifiers.base import CandidateFailedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MAX_FOLLOWED: Final = 40
"""The maximum number of links that Linux follows in one path."""
_MAX_PATH: Final = 8192
_MAX_STEPS: Final = 1_000_000
"""The maximum number of path components that are processed for all links of a workspace.

Processing that many takes seconds. Honest workspaces need far fewer.
"""
UNKNOWN: Final = b"?"
"""What :meth:`WorkspaceLinks.resolve` returns for a link that may lead anywhere. Real paths begin with a slash."""
_DEVICES: Final = frozenset({b"null", b"zero", b"full", b"random", b"urandom", b"tty", b"stdout", b"stderr"})
"""The files in ``/dev`` that a link may lead to: not ``stdin`` or ``fd``, where the checker may have an input open."""
_DESCRIPTORS: Final = frozenset({b"fd", b"stdin", b"stdout", b"stderr", b"core"})
"""Names in ``/dev`` that are links into ``/proc``."""
_INPUTS: Final = LANE_ROOTS[Visibility.EVALUATION_INPUTS].rpartition("/")[2]


class WorkspaceLinks:
    """The links of a workspace that is at ``root`` in a sandbox. ``links`` maps paths below the workspace to targets.

    The contents of the image are unknown. Each name that is neither in nor above the workspace may be a link of the
    image or of the kernel, so ``..`` after such a name leads to an unknown directory.
    """

    def __init__(self, root: str, links: Mapping[bytes, bytes]) -> None:
        self.root = os.fsencode(root)
        self._links = links
        self._steps = 0

    def __iter__(self) -> Iterator[bytes]:
        """Yield the path of each link below the workspace."""
        return iter(self._links)

    def resolve(self, path: bytes) -> bytes | None:
        """Return where the absolute ``path`` leads, following links as the kernel does; ``None`` for too many links.

        Returns :data:`UNKNOWN` if the links of the workspace alone do not show where the path leads. This is the case
        for ``..`` after a name that is neither in nor above the workspace, for ``/proc``, and for most of ``/dev``. It
        is also the case for very long paths, and for paths that may lead to evaluation inputs through links of the
        image.

        Raises :class:`CandidateFailedError` if all calls together took too much work.
        """
        done, followed = b"", 0
        left = path.split(b"/")[::-1]
        while left:
            part = left.pop()
            self._count()
            if part in {b"", b"."}:
                continue
            if part == b"..":
                if not self._is_plain(done):
                    return UNKNOWN
                done = done.rpartition(b"/")[0]
                continue
            done += b"/" + part
            if len(done) > _MAX_PATH:
                return UNKNOWN
            target = self._links.get(self.below_root(done) or b"")
            if target is not None:
                followed += 1
                if followed > _MAX_FOLLOWED:
                    return None
                done = b"" if target.startswith(b"/") else done.rpartition(b"/")[0]
                left += target.split(b"/")[::-1]
        return UNKNOWN if self.below_root(done) is None and _may_lead_back(done) else done or b"/"

    def below_root(self, path: bytes) -> bytes | None:
        """Return the absolute ``path`` relative to the workspace, or ``None`` if it is outside.

        For the workspace itself, the result is empty (``b""``).
        """
        if path == self.root:
            return b""
        return path[len(self.root) + 1 :] if path.startswith(self.root + b"/") else None

    def _is_plain(self, path: bytes) -> bool:
        """Return whether ``path`` is in or above the workspace.

        The workspace's links in ``path`` must already be resolved. If the result is ``True``, ``path`` is not a link.
        Otherwise, ``path`` may be a link of the image or of the kernel.
        """
        return self.below_root(path) is not None or self.root.startswith(path + b"/")

    def _count(self) -> None:
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise CandidateFailedError(FailureReason.UNSAFE_WORKSPACE, "the workspace's links take too long to follow")


def _may_lead_back(path: bytes) -> bool:
    """Return whether a path outside the workspace, without ``..``, may lead to the evaluation inputs or an open file.

    ``proc``, ``dev`` and the inputs are recognized by name, in any directory.
    """
    # Links of the image can give directories additional names, such as /host for the root directory.
    names = path.split(b"/")[1:]
    if names[:1] == [b"dev"] and not (len(names) == 2 and names[1] in _DEVICES):  # noqa: PLR2004 -- /dev/NAME
        return True
    if b"proc" in names or any(folded(name.decode("utf-8", "surrogateescape")) == _INPUTS for name in names):
        return True
    behind_dev = {after for name, after in pairwise(names[1:]) if name == b"dev"}
    return bool(behind_dev & _DESCRIPTORS)
