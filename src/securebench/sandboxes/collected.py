"""What a sandbox leaves of a directory of its image, as its driver has it: raw, hostile, and looked at by nobody yet.

:mod:`securebench.workspaces` reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from securebench.errors import CandidateError, FailurePhase, FailureReason

if TYPE_CHECKING:
    from collections.abc import Iterator

TRUSTED_OPAQUE: Final = "trusted.overlay.opaque"


class DirectoryReplacedError(CandidateError):
    """Where the directory was, or on the way to it, is something else now: what it held cannot be told any more."""

    default_code = "collected-replaced"

    def __init__(self, path: str) -> None:
        message = f"the directory {path}, or one above it, was removed or replaced in the sandbox"
        super().__init__(FailureReason.UNSAFE_WORKSPACE, message, phase=FailurePhase.SEAL)


@dataclass(frozen=True, slots=True)
class CollectedLayer:
    """What was changed, as overlayfs keeps it: what is not here is as it was in the image.

    ``descriptor`` is that of the directory, open, and -1 where nothing below it was changed; it belongs to the sandbox.
    ``whole``: it took the place of the image's, so that what is not here is gone.

    A character device 0/0 stands for what was removed. A directory below with the extended attribute ``opaque`` of
    value ``y`` shows nothing of what the image has there. The other attribute of these two is data: who may not write
    ``trusted.*`` can give himself a ``user.*`` attribute of any name. Files are whole, and hard links of the image are
    not kept, so that what was written through one name is found under that name alone.
    """

    descriptor: int
    opaque: str = TRUSTED_OPAQUE
    whole: bool = False


@dataclass(frozen=True, slots=True)
class CollectedArchive:
    """The whole directory as it is now, as the pieces of a tar archive whose names begin with its last name.

    Taking the pieces raises :class:`InfrastructureError` when the engine goes away.
    """

    pieces: Iterator[bytes]


Collected: TypeAlias = CollectedLayer | CollectedArchive
