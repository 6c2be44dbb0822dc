"""The changes that a sandbox made in a directory of its image: raw, unvalidated and hostile.

:mod:`securebench.workspaces` reads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from securebench.errors import CandidateError, FailurePhase, FailureReason

if TYPE_CHECKING:
    from collections.abc import Iterator

TRUSTED_OPAQUE: Final = "trusted.overlay.opaque"


class DirectoryReplacedError(CandidateError):
    """The directory to collect, or one above it, was removed, or is now a link or a file: its changes are unknown."""

    default_code = "collected-replaced"

    def __init__(self, path: str) -> None:
        message = f"the directory {path}, or one above it, was removed in the sandbox, or is now a link or a file"
        super().__init__(FailureReason.UNSAFE_WORKSPACE, message, phase=FailurePhase.SEAL)


@dataclass(frozen=True, slots=True)
class CollectedLayer:
    """The changed entries of a directory, as overlayfs stores them.

    ``descriptor`` is the layer's open directory, or -1 if nothing was changed. The sandbox owns the descriptor. Entries
    that are not in the layer are as in the image. If ``whole`` is set, they were removed instead, because the directory
    of the image was replaced with a new one.

    A character device 0/0 marks a removed entry. ``opaque`` is the name of an extended attribute:
    ``trusted.overlay.opaque`` or ``user.overlay.opaque``. A directory on which this attribute has the value ``y`` hides
    the image's entries. If ``opaque`` is ``trusted.overlay.opaque``, ignore the attribute ``user.overlay.opaque``:
    processes in the sandbox can set it.

    Changed files are stored completely. Hard links of the image are not kept, so a write through one name appears under
    that name only.
    """

    descriptor: int
    opaque: str = TRUSTED_OPAQUE
    whole: bool = False


@dataclass(frozen=True, slots=True)
class CollectedArchive:
    """The whole directory as pieces of a tar archive. Its names begin with the last component of the directory.

    Reading the pieces raises :class:`InfrastructureError` if the engine becomes unavailable.
    """

    pieces: Iterator[bytes]


Collected: TypeAlias = CollectedLayer | CollectedArchive
