"""What a sandbox leaves of a directory of its image, as its driver has it: raw, hostile, and looked at by nobody yet.

:mod:`securebench.workspaces` reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class CollectedLayer:
    """What was changed, as overlayfs keeps it: what is not here is as it was in the image.

    ``descriptor`` is that of the directory, open, and -1 where nothing below it was changed. A character device 0/0
    stands for what was removed; a directory with the extended attribute ``trusted.overlay.opaque``, or
    ``user.overlay.opaque``, of value ``y`` shows nothing of what the image has there.
    """

    descriptor: int


@dataclass(frozen=True, slots=True)
class CollectedArchive:
    """The whole directory as it is now, as the pieces of a tar archive whose names begin with its last name."""

    pieces: Iterator[bytes]


Collected: TypeAlias = CollectedLayer | CollectedArchive
