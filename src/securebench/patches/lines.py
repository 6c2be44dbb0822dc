"""Line differences in bounded time: small ones are exact, large ones become one block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from securebench.patches.model import Steps

CONTEXT: Final = 3
"""The number of unchanged lines that are shown around a change, as in git."""

_MAX_EDITS: Final = 256
"""The search for the differences between two versions gives up at this many single edits.

Its memory use grows with the square of the number of edits.
"""


@dataclass(frozen=True, slots=True)
class Change:
    """Lines ``old_start:old_end`` of the old version became ``new_start:new_end`` of the new one. 0-based."""

    old_start: int
    old_end: int
    new_start: int
    new_end: int


def split_lines(content: bytes) -> list[bytes]:
    """Return the lines of ``content`` with their line feeds. Only a line feed ends a line."""
    lines = content.split(b"\n")
    last = lines.pop()
    return [line + b"\n" for line in lines] + ([last] if last else [])


def changes(old: Sequence[bytes], new: Sequence[bytes], steps: Steps) -> list[Change]:
    """Return the changes from ``old`` to ``new``, in order. No two of them are adjacent.

    If there are too many, or ``steps`` run out, one change covers all lines from the first difference to the last.
    """
    head = _common(old, new)
    tail = _common(old[head:][::-1], new[head:][::-1])
    olds, news = old[head : len(old) - tail], new[head : len(new) - tail]
    if not olds and not news:
        return []
    ids: dict[bytes, int] = {}
    old_ids, new_ids = ([ids.setdefault(line, len(ids)) for line in side] for side in (olds, news))
    found = _edits(old_ids, new_ids, steps)
    if found is None:
        found = [Change(0, len(olds), 0, len(news))]
    return [Change(c.old_start + head, c.old_end + head, c.new_start + head, c.new_end + head) for c in found]


def grouped(found: Sequence[Change]) -> list[list[Change]]:
    """Group the changes into hunks. Changes whose context lines meet or overlap are in one hunk."""
    groups: list[list[Change]] = []
    for change in found:
        if groups and change.old_start - groups[-1][-1].old_end <= 2 * CONTEXT:
            groups[-1].append(change)
        else:
            groups.append([change])
    return groups


def _common(left: Sequence[bytes], right: Sequence[bytes]) -> int:
    """Return the number of equal lines at the start of both sequences."""
    count = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        count += 1
    return count


def _edits(old: list[int], new: list[int], steps: Steps) -> list[Change] | None:
    """Return the fewest edits from ``old`` to ``new`` (Myers 1986).

    Returns ``None`` if there are too many, if ``steps`` run out, or if ``old`` or ``new`` is empty.
    """
    if not old or not new:
        return None
    furthest, history = {1: 0}, []
    for edits in range(_MAX_EDITS):
        history.append(dict(furthest))
        for diagonal in range(-edits, edits + 1, 2):
            start = _reached(furthest, diagonal, edits)
            x, y = start, start - diagonal
            while x < len(old) and y < len(new) and old[x] == new[y]:
                x, y = x + 1, y + 1
            furthest[diagonal] = x
            if not steps.spend(1 + x - start):
                return None
            if x >= len(old) and y >= len(new):
                return _merged(_walked_back(history, x, y))
    return None


def _reached(furthest: dict[int, int], diagonal: int, edits: int) -> int:
    """Return how far one more edit reaches on ``diagonal``.

    The edit is an insertion that starts on the diagonal above, or a removal that starts on the diagonal below.
    """
    if _is_insertion(furthest, diagonal, edits):
        return furthest[diagonal + 1]
    return furthest[diagonal - 1] + 1


def _is_insertion(furthest: dict[int, int], diagonal: int, edits: int) -> bool:
    return diagonal == -edits or (diagonal != edits and furthest[diagonal - 1] < furthest[diagonal + 1])


def _walked_back(history: list[dict[int, int]], x: int, y: int) -> list[Change]:
    """Return the single edits on the path to ``(x, y)``, in order."""
    single: list[Change] = []
    for edits in range(len(history) - 1, 0, -1):
        furthest, diagonal = history[edits], x - y
        inserted = _is_insertion(furthest, diagonal, edits)
        before = diagonal + 1 if inserted else diagonal - 1
        x = furthest[before]
        y = x - before
        single.append(Change(x, x if inserted else x + 1, y, y + 1 if inserted else y))
    return single[::-1]


def _merged(single: list[Change]) -> list[Change]:
    """Return ``single`` with adjacent edits merged."""
    merged: list[Change] = []
    for edit in single:
        last = merged[-1] if merged else None
        if last and (last.old_end, last.new_end) == (edit.old_start, edit.new_start):
            merged[-1] = Change(last.old_start, edit.old_end, last.new_start, edit.new_end)
        else:
            merged.append(edit)
    return merged
