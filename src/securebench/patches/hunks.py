"""Parse and apply hunks. Matching is never fuzzy: every line must match exactly."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from securebench.patches.lines import split_lines
from securebench.patches.model import PatchDoesNotApplyError, PatchInvalidError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from securebench.patches.model import Steps

HUNK_HEADER = re.compile(rb"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")


@dataclass(frozen=True, slots=True)
class Hunk:
    """The lines to find, and their replacement. ``trailing`` is the number of unchanged lines at the end."""

    old_start: int
    new_start: int
    old: tuple[bytes, ...]
    new: tuple[bytes, ...]
    trailing: int


class _Reader:
    """Collects the lines of one hunk."""

    def __init__(self) -> None:
        self.old: list[bytes] = []
        self.new: list[bytes] = []
        self.trailing = 0
        self._mark = b""

    def add(self, line: bytes) -> None:
        self._mark, text = (line[:1], line[1:] + b"\n") if line else (b" ", b"\n")
        if self._mark not in (b" ", b"-", b"+"):
            raise PatchInvalidError("a hunk is shorter than its header says, or contains an invalid line")
        for side in self._sides():
            if side and not side[-1].endswith(b"\n"):
                raise PatchInvalidError("a hunk continues after a line without a line feed")
            side.append(text)
        self.trailing = self.trailing + 1 if self._mark == b" " else 0

    def cut(self) -> None:
        """Remove the line feed of the last line."""
        for side in self._sides():
            side[-1] = side[-1].removesuffix(b"\n")

    def _sides(self) -> list[list[bytes]]:
        return {b"-": [self.old], b"+": [self.new]}.get(self._mark, [self.old, self.new])


def read_hunk(header: re.Match[bytes], lines: Sequence[bytes], at: int) -> tuple[Hunk, int]:
    """Return the hunk whose lines begin at ``at``, and the index after them. Raises :class:`PatchInvalidError`."""
    old_count, new_count = (1 if header[group] is None else int(header[group]) for group in (2, 4))
    reader = _Reader()
    while len(reader.old) < old_count or len(reader.new) < new_count:
        if at >= len(lines):
            raise PatchInvalidError("the patch ends inside a hunk")
        if lines[at].startswith(b"\\ ") and (reader.old or reader.new):
            reader.cut()
        else:
            reader.add(lines[at])
        at += 1
    if at < len(lines) and lines[at].startswith(b"\\ ") and (reader.old or reader.new):
        reader.cut()
        at += 1
    if (len(reader.old), len(reader.new)) != (old_count, new_count):
        raise PatchInvalidError("a hunk does not have the size that its header gives")
    return Hunk(int(header[1]), int(header[3]), tuple(reader.old), tuple(reader.new), reader.trailing), at


def apply_hunks(content: bytes, hunks: Sequence[Hunk], steps: Steps) -> bytes:
    """Apply ``hunks`` to ``content`` in order. Raises :class:`PatchDoesNotApplyError`."""
    source, made, cursor = split_lines(content), list[bytes](), 0
    for hunk in hunks:
        expected = max(hunk.new_start - 1, 0) - (len(made) - cursor)
        at = _find(source, hunk, expected, steps)
        if at is None:
            raise PatchDoesNotApplyError(f"the hunk for line {hunk.old_start} does not match the content of the file")
        if at < cursor:
            raise PatchDoesNotApplyError(
                f"the hunk for line {hunk.old_start} matches before the end of an earlier hunk: the hunks overlap or"
                " are out of order"
            )
        made += source[cursor:at]
        made += hunk.new
        cursor = at + len(hunk.old)
        if cursor < len(source) and hunk.new and not hunk.new[-1].endswith(b"\n"):
            raise PatchDoesNotApplyError(
                f"the hunk for line {hunk.old_start} ends without a line feed, but is not at the end of the file"
            )
    return b"".join(made + source[cursor:])


def _find(source: list[bytes], hunk: Hunk, expected: int, steps: Steps) -> int | None:
    """Return the index of the line nearest to ``expected`` at which ``hunk`` matches, or ``None``.

    As in git, a hunk at line 1 matches only at the start of the file. A hunk without unchanged lines at its end matches
    only at the end of the file.
    """
    old, last = list(hunk.old), len(source) - len(hunk.old)
    at_start, at_end = hunk.old_start <= 1, hunk.trailing == 0
    if at_start or at_end:
        at = 0 if at_start else last
        fits = at >= 0 and source[at : at + len(old)] == old and (not at_end or at == last)
        return at if fits else None
    if expected >= 0 and source[expected : expected + len(old)] == old:
        return expected
    if not steps.spend(len(source) + len(old)):
        raise PatchDoesNotApplyError("too many hunks do not match at the line numbers in their headers")
    return min(_occurrences(source, old), key=lambda at: (abs(at - expected), at < expected), default=None)


def _occurrences(source: list[bytes], wanted: list[bytes]) -> Iterator[int]:
    """Yield each index at which ``wanted`` occurs in ``source``. ``wanted`` must not be empty.

    The search takes linear time (Knuth, Morris, Pratt).
    """
    ids: dict[bytes, int] = {}
    pattern, text = ([ids.setdefault(line, len(ids)) for line in lines] for lines in (wanted, source))
    borders = _borders(pattern)
    matched = 0
    for at, line in enumerate(text):
        while matched and (matched == len(pattern) or pattern[matched] != line):
            matched = borders[matched - 1]
        matched += pattern[matched] == line
        if matched == len(pattern):
            yield at + 1 - matched


def _borders(pattern: list[int]) -> list[int]:
    """Return the Knuth-Morris-Pratt table: for each prefix, the length of its longest proper border."""
    borders, length = [0], 0
    for item in pattern[1:]:
        while length and pattern[length] != item:
            length = borders[length - 1]
        length += pattern[length] == item
        borders.append(length)
    return borders
