"""Where the links of a sealed workspace lead in a checker's sandbox, found out without following any on the host."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

from securebench.errors import FailureReason
from securebench.verifiers.faults import FaultError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MAX_FOLLOWED: Final = 40
"""Links that Linux follows on the way to one file."""
_MAX_PATH: Final = 8192
_MAX_STEPS: Final = 1_000_000
"""Names that are looked at for all links of a workspace: seconds of work, and far more than honest trees need."""
PROC: Final = b"/proc/..."
_MAGIC: Final = re.compile(rb"/proc/[^/]+(/task/[^/]+)?/(cwd|root)")
"""Links of the kernel that lead back into the sandbox's own tree."""


class WorkspaceLinks:
    """The ``links`` (path below the workspace to target) of a workspace that lies at ``root`` in a sandbox.

    What the image has is not known: outside the workspace every name counts as a plain one.
    """

    def __init__(self, root: str, links: Mapping[bytes, bytes]) -> None:
        self.root = os.fsencode(root)
        self._links = links
        self._steps = 0

    def __iter__(self) -> Iterator[bytes]:
        """Yield the path of each link below the workspace."""
        return iter(self._links)

    def resolve(self, path: bytes) -> bytes | None:
        """Return where the absolute ``path`` leads, as the kernel follows links; ``None`` where it leads nowhere.

        :data:`PROC` stands for whatever a link of the kernel leads to. Raises :class:`FaultError` when all calls took
        too much work together.
        """
        done, followed = b"", 0
        left = path.split(b"/")[::-1]
        while left:
            part = left.pop()
            self._count()
            if part in {b"", b"."}:
                continue
            if part == b"..":
                done = done.rpartition(b"/")[0]
                continue
            done += b"/" + part
            if len(done) > _MAX_PATH:
                return None
            target = self._links.get(self.below_root(done) or b"")
            if target is not None:
                followed += 1
                if followed > _MAX_FOLLOWED:
                    return None
                done = b"" if target.startswith(b"/") else done.rpartition(b"/")[0]
                left += target.split(b"/")[::-1]
            elif _MAGIC.fullmatch(done):
                return PROC
        return done or b"/"

    def below_root(self, path: bytes) -> bytes | None:
        """Return the absolute ``path`` relative to the workspace (``b""`` for itself); ``None`` outside of it."""
        if path == self.root:
            return b""
        return path[len(self.root) + 1 :] if path.startswith(self.root + b"/") else None

    def _count(self) -> None:
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise FaultError(FailureReason.UNSAFE_WORKSPACE, "the workspace's links take too long to follow")
