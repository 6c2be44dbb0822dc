"""Parse patches: git's format and plain unified diffs, without heuristics.

Text before, between and after file changes is skipped, such as the text of an email. Anything that looks like a
change but cannot be applied completely is rejected.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from securebench.patches.binary import BinaryHunk
from securebench.patches.binary import read_hunk as read_binary
from securebench.patches.headers import GitHeader, has_epoch, side_name
from securebench.patches.hunks import HUNK_HEADER, Hunk, read_hunk
from securebench.patches.model import (
    MAX_FILES,
    MAX_HEADER_LINE,
    MAX_HUNKS,
    MAX_PATCH_BYTES,
    MAX_PATCH_LINES,
    PatchInvalidError,
)
from securebench.patches.names import path_fault, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

_REFUSED: Final = (
    (
        re.compile(rb"Binary files .* differ\r?"),
        "the data of a binary file is missing; use 'git diff --binary'",
    ),
    (re.compile(rb"diff --(?:cc|combined) .*"), "it is a diff of a merge"),
    (re.compile(rb"GIT binary patch\r?"), "binary data without a file header"),
    (re.compile(HUNK_HEADER.pattern + rb".*"), "a hunk without a file header"),
)


class ChangeKind(StrEnum):
    """What a patch does to one file."""

    CHANGE = "change"
    CREATE = "create"
    DELETE = "delete"
    RENAME = "rename"
    COPY = "copy"


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePatch:
    """The change to one file. The paths ``old`` and ``new`` differ only if the file is renamed or copied.

    The modes are git's, and ``None`` if the patch does not specify them. ``old_blob`` is git's id of the old content:
    it may be abbreviated, and is empty if the patch does not specify it.
    """

    kind: ChangeKind
    old: bytes
    new: bytes
    old_mode: int | None = None
    new_mode: int | None = None
    old_blob: bytes = b""
    hunks: tuple[Hunk, ...] = ()
    binary: BinaryHunk | None = None


def parse(data: bytes) -> list[FilePatch]:
    """Return the changes in ``data``, file by file. Raises :class:`PatchInvalidError`, also if no file changes."""
    if len(data) > MAX_PATCH_BYTES or data.count(b"\n") > MAX_PATCH_LINES:
        raise PatchInvalidError(f"the patch is larger than {MAX_PATCH_BYTES} bytes or {MAX_PATCH_LINES} lines")
    found = list(_Parser(data.removesuffix(b"\n").split(b"\n")).patches())
    if not found:
        raise PatchInvalidError("the patch changes nothing", hint="expected the output of 'git diff' or 'diff -u'")
    for path in {path for patch in found for path in (patch.old, patch.new)}:
        if fault := path_fault(path):
            raise PatchInvalidError(f"the path {shown(path)} {fault}")
    return found


class _Parser:
    def __init__(self, lines: list[bytes]) -> None:
        self._lines = lines
        self._at = 0
        self._hunks_left = MAX_HUNKS

    def patches(self) -> Iterator[FilePatch]:
        count = 0
        while self._at < len(self._lines):
            patch = self._next()
            count += patch is not None
            if count > MAX_FILES:
                raise PatchInvalidError(f"the patch changes more than {MAX_FILES} files")
            if patch is not None:
                yield patch

    def _next(self) -> FilePatch | None:
        """Return the patch that begins at the next line, or skip the line and return ``None``."""
        line = self._peek()
        if line.startswith(b"diff --git "):
            return self._git()
        if line.startswith(b"--- ") and self._peek(1).startswith(b"+++ "):
            return self._plain()
        for pattern, why in _REFUSED:
            if pattern.fullmatch(line):
                raise PatchInvalidError(f"invalid patch: {why}")
        self._at += 1
        return None

    def _peek(self, ahead: int = 0) -> bytes:
        at = self._at + ahead
        return self._lines[at] if at < len(self._lines) else b""

    def _take_header(self) -> bytes:
        line = self._peek()
        if len(line) > MAX_HEADER_LINE:
            raise PatchInvalidError("a header line of the patch is too long")
        self._at += 1
        return line.removesuffix(b"\r")

    def _git(self) -> FilePatch:
        header = GitHeader(self._take_header())
        while header.accepts(self._peek()):
            header.read(self._take_header())
        hunks, binary = self._content(header)
        kind = ChangeKind(header.kind)
        if (
            not hunks
            and binary is None
            and kind is ChangeKind.CHANGE
            and header.new_mode is None
            and not header.old_blob
        ):
            raise PatchInvalidError(f"the patch contains no change to {shown(header.old)}")
        return FilePatch(
            kind=kind,
            old=header.old,
            new=header.new,
            old_mode=header.old_mode,
            new_mode=header.new_mode,
            old_blob=header.old_blob,
            hunks=hunks,
            binary=binary,
        )

    def _content(self, header: GitHeader) -> tuple[tuple[Hunk, ...], BinaryHunk | None]:
        """Return the content after a git header: hunks, binary data, or nothing."""
        if self._peek().removesuffix(b"\r") == b"GIT binary patch":
            return (), self._binary()
        if self._peek().startswith(b"--- ") and self._peek(1).startswith(b"+++ "):
            header.check_sides(self._take_header(), self._take_header())
            return self._hunks(), None
        return (), None

    def _binary(self) -> BinaryHunk:
        """Return the first hunk of binary data, and skip the reverse hunk, if any."""
        self._at += 1
        hunk = read_binary(self._peek(), self._lines_after())
        if self._peek().startswith((b"literal ", b"delta ")):
            read_binary(self._peek(), self._lines_after())
        return hunk

    def _lines_after(self) -> Iterator[bytes]:
        """Skip the next line and yield the lines after it, then an empty line."""
        self._at += 1
        while self._at < len(self._lines):
            self._at += 1
            yield self._lines[self._at - 1]
        yield b""  # so that the end of the patch also ends binary data

    def _plain(self) -> FilePatch:
        """Return the patch of one file. The patch has no git header, and begins with ``---`` and ``+++``."""
        first, second = self._take_header(), self._take_header()
        old, new = (None if has_epoch(line) else side_name(line[4:]) for line in (first, second))
        if (name := new if old is None else old) is None or (old and new and old != new):
            raise PatchInvalidError("'---' and '+++' name different files or no file")
        kind = ChangeKind.CREATE if old is None else ChangeKind.DELETE if new is None else ChangeKind.CHANGE
        return FilePatch(kind=kind, old=name, new=name, hunks=self._hunks())

    def _hunks(self) -> tuple[Hunk, ...]:
        """Return the hunks that begin here: at least one."""
        hunks: list[Hunk] = []
        while match := HUNK_HEADER.match(self._peek()):
            hunk, self._at = read_hunk(match, self._lines, self._at + 1)
            hunks.append(hunk)
        self._hunks_left -= len(hunks)
        if self._hunks_left < 0:
            raise PatchInvalidError(f"the patch has more than {MAX_HUNKS} hunks")
        if not hunks:
            raise PatchInvalidError("the patch has a file header without a hunk")
        return tuple(hunks)
