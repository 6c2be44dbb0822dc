"""Render changes as a patch for ``git apply`` and for people."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from securebench.patches.binary import literal
from securebench.patches.lines import CONTEXT, changes, grouped, split_lines
from securebench.patches.model import DIFF_STEPS, Steps
from securebench.patches.names import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from securebench.patches.lines import Change
    from securebench.patches.model import Delta, FileTree, FileVersion

MAX_TEXT_BYTES: Final = 2 * 1024 * 1024
"""The largest file content, in bytes, that is rendered as text. Larger content is rendered as binary data."""

_NOTHING: Final = b"0" * 40
_NO_NEWLINE: Final = b"\n\\ No newline at end of file\n"


def render(delta: Delta, base: FileTree) -> str:
    """Return ``delta`` as a git-style unified diff against ``base``, sorted by path; empty without changes.

    Content that is not UTF-8 text, or is large, becomes a ``GIT binary patch``. Uses bounded time: if the changes in a
    file take too long to compute, all lines from the first change in the file to the last are removed and added.
    """
    steps = Steps(DIFF_STEPS)
    pieces: list[bytes] = []
    for path, new in sorted(delta.items()):
        old = base.get(path)
        if old == new:
            continue
        if old and new and old.link != new.link:  # like git, remove the old entry and add the new one
            pieces += [*_section(path, old, None, steps), *_section(path, None, new, steps)]
        else:
            pieces += _section(path, old, new, steps)
    return b"".join(pieces).decode("utf-8")


def _section(path: bytes, old: FileVersion | None, new: FileVersion | None, steps: Steps) -> Iterator[bytes]:
    a, b = quoted(b"a/" + path), quoted(b"b/" + path)
    yield b"diff --git %s %s\n" % (a, b)
    yield from _modes(old, new)
    before, after = (version.content if version else b"" for version in (old, new))
    if before == after and old and new:
        return
    same_mode = b" " + _mode(new) if old and new and _mode(old) == _mode(new) else b""
    yield b"index %s..%s%s\n" % (_blob(old), _blob(new), same_mode)
    if before == after:
        return
    if not (_is_text(before) and _is_text(after)):
        yield b"GIT binary patch\n" + literal(after)
        return
    tab = b"\t" if b" " in path else b""  # as in git, a tab marks the end of a name with spaces
    yield b"--- %s\n" % (a + tab if old else b"/dev/null")
    yield b"+++ %s\n" % (b + tab if new else b"/dev/null")
    yield from _hunks(split_lines(before), split_lines(after), steps)


def _modes(old: FileVersion | None, new: FileVersion | None) -> Iterator[bytes]:
    if old is None and new is not None:
        yield b"new file mode %s\n" % _mode(new)
    elif new is None and old is not None:
        yield b"deleted file mode %s\n" % _mode(old)
    elif old and new and _mode(old) != _mode(new):
        yield b"old mode %s\nnew mode %s\n" % (_mode(old), _mode(new))


def _mode(version: FileVersion) -> bytes:
    if version.link:
        return b"120000"
    return b"100755" if version.executable else b"100644"


def _blob(version: FileVersion | None) -> bytes:
    """Return git's id of the content of ``version``. Git rejects binary patches without such ids."""
    if version is None:
        return _NOTHING
    sha = hashlib.sha1(b"blob %d\0" % len(version.content), usedforsecurity=False)
    sha.update(version.content)
    return sha.hexdigest().encode("ascii")


def _is_text(content: bytes) -> bool:
    if len(content) > MAX_TEXT_BYTES or b"\0" in content:
        return False
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _hunks(old: list[bytes], new: list[bytes], steps: Steps) -> Iterator[bytes]:
    for group in grouped(changes(old, new, steps)):
        lead = min(CONTEXT, group[0].old_start)
        trail = min(CONTEXT, len(old) - group[-1].old_end)
        olds = (group[0].old_start - lead, group[-1].old_end + trail)
        news = (group[0].new_start - lead, group[-1].new_end + trail)
        yield b"@@ -%s +%s @@\n" % (_range(*olds), _range(*news))
        yield from _body(old, new, group, olds)


def _range(start: int, end: int) -> bytes:
    """Return the lines ``start:end``, counted from 0, as a range in a hunk header.

    In a header, lines are counted from 1, and an empty range has the number of the line before it.
    """
    count = end - start
    at = start + 1 if count else start
    return b"%d" % at if count == 1 else b"%d,%d" % (at, count)


def _body(old: Sequence[bytes], new: Sequence[bytes], group: list[Change], span: tuple[int, int]) -> Iterator[bytes]:
    at = span[0]
    for change in group:
        yield from (_line(b" ", line) for line in old[at : change.old_start])
        yield from (_line(b"-", line) for line in old[change.old_start : change.old_end])
        yield from (_line(b"+", line) for line in new[change.new_start : change.new_end])
        at = change.old_end
    yield from (_line(b" ", line) for line in old[at : span[1]])


def _line(mark: bytes, line: bytes) -> bytes:
    return mark + line if line.endswith(b"\n") else mark + line + _NO_NEWLINE
