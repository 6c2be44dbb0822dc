"""Limits on the time and memory of reading a patch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MAX_PATCH_BYTES: Final = 32 * 1024 * 1024
"""Bytes of a patch. The largest in public benchmarks are below one MiB."""

MAX_PATCH_LINES: Final = 1_000_000
"""Lines of a patch, counted before splitting: each line costs more memory than its bytes."""

MAX_FILES: Final = 10_000
MAX_HUNKS: Final = 100_000

MAX_HEADER_LINE: Final = 16 * 1024
"""Bytes of a line that names a file. Two paths of maximum length would only be longer if every byte were escaped."""

MAX_CHANGED_BYTES: Final = 64 * 1024 * 1024
"""Bytes of all files that a patch writes. Copies and compressed data count with their full size."""

SEARCH_STEPS: Final = 10_000_000
"""Lines compared to find moved hunks: a few seconds."""

DIFF_STEPS: Final = 4_000_000
"""Comparisons to find minimal differences, for all files of a change together: a few seconds."""


@dataclass(slots=True)
class Steps:
    """A remaining budget of steps."""

    left: int

    def spend(self, count: int) -> bool:
        """Spend ``count`` steps, and return whether enough were left."""
        self.left -= count
        return self.left >= 0
