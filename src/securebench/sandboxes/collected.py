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
    """The directory or one of its parents was replaced, so its content is unknown."""

    default_code = "collected-replaced"

    def __init__(self, path: str) -> None:
        message = f"the directory {path}, or one above it, was removed or replaced in the sandbox"
        super().__init__(FailureReason.UNSAFE_WORKSPACE, message, phase=FailurePhase.SEAL)


@dataclass(frozen=True, slots=True)
class CollectedLayer:
    """The changed entries, as overlayfs stores them. Entries that are missing here are as in the image.

    ``descriptor`` is the open directory, or -1 if nothing below it was changed. The sandbox owns it. If ``whole``, the
    directory replaced that of the image, and entries that are missing here were removed.

    A character device 0/0 marks a removed entry. A directory with the extended attribute ``opaque`` of value ``y``
    hides the image's entries. The other of the two attribute names is data: a process that may not write ``trusted.*``
    can still set any ``user.*`` attribute. Files are complete. Hard links of the image are not kept, so a write through
    one name appears under that name only.
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
