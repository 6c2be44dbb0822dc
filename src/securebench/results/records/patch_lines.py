"""Find the added lines of a patch.

The lines of each hunk are counted, as in git, because an added line may look like a header of a patch.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_HUNK: Final = re.compile(r"@@ -[0-9]+(?:,([0-9]+))? \+[0-9]+(?:,([0-9]+))? @@.*")


def added_lines(lines: list[str]) -> Iterator[list[int]]:
    """Yield the indices of the added lines of each file that has any, in a patch that SecureBench rendered."""
    added: list[int] = []
    old = new = 0
    for number, line in enumerate(lines):
        if old > 0 or new > 0:
            old -= line[:1] in {" ", "-"}
            new -= line[:1] in {" ", "+"}
            added += [number] if line.startswith("+") else []
        elif match := _HUNK.fullmatch(line):
            old, new = (1 if count is None else int(count) for count in match.groups())
        elif line.startswith("diff --git ") and added:
            yield added
            added = []
    if added:
        yield added
