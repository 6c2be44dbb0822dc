"""The limits of archives and the errors for unusable archives, which all readers of archives share.

Most archives are image layers, so the errors are of the type :class:`ImageError`. Callers that read other archives,
such as agent packages or sealed candidates, catch these errors and raise errors of another type.
"""

from __future__ import annotations

from dataclasses import dataclass

from securebench.errors import ImageError
from securebench.limits import GIB, MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveLimits:
    """Limits that stop decompression bombs and floods of files. The defaults have ample room for real images.

    Content that exceeds a limit raises :class:`ImageError` (``image-too-large``).
    """

    bytes: int = 64 * GIB
    """The maximum uncompressed size in bytes of all layers together. This also limits the total size of their files."""
    members: int = 2_000_000
    """The maximum number of members of all layers together."""
    depth: int = 256
    """The maximum number of names in the path of a member."""
    header: int = MIB
    """The maximum size in bytes of the extended headers of one member, which contain long names and attributes."""
    ratio: int = 200
    """The maximum expansion: bytes per compressed byte. Ignored until ``ratio_floor`` bytes are expanded."""
    ratio_floor: int = GIB


def malformed(what: str, problem: str) -> ImageError:
    """Return the error for a document, archive or member with invalid content."""
    return ImageError(f"{what}: {problem}", code="image-malformed", hint="build or fetch the image again")


def too_large(what: str, problem: str) -> ImageError:
    """Return the error for content that exceeds a limit."""
    return ImageError(
        f"{what}: {problem}",
        code="image-too-large",
        hint="use fewer or smaller files; real images are far below the limits",
    )


def wrong_digest(what: str, expected: str, actual: str) -> ImageError:
    """Return the error for content with an unexpected digest."""
    return ImageError(
        f"{what}: its digest is {actual}, not {expected}",
        code="image-blob-mismatch",
        hint="it was damaged or replaced in transit; fetch it again",
    )
