"""File trees and changes to them, the limits on patches, and the errors of patches.

Paths are bytes: relative, with plain components separated by ``/``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, Protocol, TypeAlias

from securebench.errors import FailureReason, SecureBenchError

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_PATCH_BYTES: Final = 32 * 1024 * 1024
"""Maximum bytes of a patch. The largest patches in public benchmarks are below one MiB."""

MAX_PATCH_LINES: Final = 1_000_000
"""Maximum lines of a patch, counted before it is split: a list of lines takes more memory than the bytes."""

MAX_FILES: Final = 10_000
MAX_HUNKS: Final = 100_000

MAX_HEADER_LINE: Final = 16 * 1024
"""Maximum bytes of a header line of a file: enough for two paths of maximum length, unless many bytes are escaped."""

MAX_CHANGED_BYTES: Final = 64 * 1024 * 1024
"""Maximum bytes of all files that a patch writes. Copies and compressed data count with their full size."""

SEARCH_STEPS: Final = 10_000_000
"""Maximum number of lines to compare in the search for moved hunks. Comparing them takes a few seconds."""

DIFF_STEPS: Final = 4_000_000
"""Maximum number of comparisons to find minimal differences, for all files of a change together.

This many comparisons take a few seconds.
"""

Delta: TypeAlias = "Mapping[bytes, FileVersion | None]"
"""The changes from one tree to another: each changed path with its new version, ``None`` if it was removed.

As in git, directories exist as long as they contain something. Unchanged paths are not included.
"""


@dataclass(slots=True)
class Steps:
    """A remaining budget of steps."""

    left: int

    def spend(self, count: int) -> bool:
        """Spend ``count`` steps, and return whether enough were left."""
        self.left -= count
        return self.left >= 0


class PatchError(SecureBenchError):
    """A patch cannot be applied; nothing was changed. ``reason`` is the failure reason if the patch is a candidate."""

    default_code = "patch-invalid"
    reason: ClassVar[FailureReason] = FailureReason.PATCH_INVALID


class PatchInvalidError(PatchError):
    """The data is not a valid patch or uses an unsupported format, regardless of the tree."""


class PatchDoesNotApplyError(PatchError):
    """A valid patch does not apply to this tree."""

    default_code = "patch-does-not-apply"
    reason = FailureReason.PATCH_DOES_NOT_APPLY


@dataclass(frozen=True, slots=True)
class FileVersion:
    """A file, or a link (whose ``content`` is its target), as git would record it."""

    content: bytes
    executable: bool = False
    link: bool = False


class FileTree(Protocol):
    """An immutable file tree."""

    def get(self, path: bytes) -> FileVersion | None:
        """Return the file or link at ``path``; ``None`` if it does not exist or is a directory."""
