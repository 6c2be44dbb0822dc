"""How much a patch may hold, so that reading one ends in bounded time and memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MAX_PATCH_BYTES: Final = 32 * 1024 * 1024
"""Bytes of a patch: the largest in the public benchmarks are below one MiB."""

MAX_PATCH_LINES: Final = 1_000_000
"""Lines of a patch, counted before it is split: each costs memory that its bytes do not show."""

MAX_FILES: Final = 10_000
MAX_HUNKS: Final = 100_000

MAX_HEADER_LINE: Final = 16 * 1024
"""Bytes of a line that names a file: two paths of the longest kind, each byte quoted as four, would not be honest."""

MAX_CHANGED_BYTES: Final = 64 * 1024 * 1024
"""Bytes of all files that a patch writes: copies and compressed data weigh what they come to."""

SEARCH_STEPS: Final = 10_000_000
"""Lines looked at to find hunks that are not where they say: some seconds."""

DIFF_STEPS: Final = 4_000_000
"""Comparisons spent on finding small differences, for all files of a change together: some seconds."""


@dataclass(slots=True)
class Steps:
    """What is left of a bound on work."""

    left: int

    def spend(self, count: int) -> bool:
        """Take ``count`` of them, and return whether there were so many."""
        self.left -= count
        return self.left >= 0
