"""The header lines of a patch: file names and the kind of change."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from securebench.patches.model import PatchInvalidError
from securebench.patches.names import shown, unquoted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MODES: Final = (0o100644, 0o100755, 0o100664, 0o120000)
"""The modes of files and links that git writes. Other modes, such as those of submodules, are refused."""

_NAME_END = re.compile(rb"[\t\r\v\f]")
_EPOCH = re.compile(rb"\t(?:1970-01-01|1969-12-31) ")
_INDEX = re.compile(rb"index ([0-9a-f]{4,64})\.\.[0-9a-f]{4,64}(?: ([0-7]{1,6}))?")


class GitHeader:
    """A git header, read line by line: ``kind``, names and modes, as far as known."""

    def __init__(self, first: bytes) -> None:
        name = _common_name(first.removeprefix(b"diff --git "))
        self.kind = "change"
        self.old_mode: int | None = None
        self.new_mode: int | None = None
        self.old_blob = b""
        self._old, self._new = name, name
        self._half_named = False

    @property
    def old(self) -> bytes:
        """The old file name. Raises :class:`PatchInvalidError` unless the header gives both names."""
        if self._old is None or self._new is None or self._half_named:
            raise PatchInvalidError("a 'diff --git' line names two files without a pair of rename or copy lines")
        return self._old

    @property
    def new(self) -> bytes:
        """The new file name. Raises the same error as :attr:`old` if the header does not give it."""
        return self._new or self.old

    @staticmethod
    def accepts(line: bytes) -> bool:
        """Return whether ``line`` belongs to a git header."""
        return line.startswith(tuple(_LINES))

    def read(self, line: bytes) -> None:
        """Parse a line for which :meth:`accepts` returns true. Raises :class:`PatchInvalidError`."""
        start = next(start for start in _LINES if line.startswith(start))
        _LINES[start](self, line)

    def check_sides(self, first: bytes, second: bytes) -> None:
        """Raise :class:`PatchInvalidError` unless ``---`` and ``+++`` agree with the header."""
        wanted = (None if self.kind == "create" else self.old, None if self.kind == "delete" else self.new)
        if (side_name(first[4:]), side_name(second[4:])) != wanted:
            raise PatchInvalidError(f"'---' and '+++' do not match the 'diff --git' header: {shown(self.new)}")

    def _be(self, kind: str) -> None:
        if self.kind not in ("change", kind):
            raise PatchInvalidError(f"the patch has conflicting changes for one file: {self.kind} and {kind}")
        self.kind = kind

    def _read_mode(self, line: bytes) -> None:
        which, mode = line.split(b" ", 1)[0], _mode(line.rpartition(b" ")[2])
        if which == b"new" and line.startswith(b"new file"):
            self._be("create")
        elif which == b"deleted":
            self._be("delete")
        if which == b"new":
            self.new_mode = mode
        else:
            self.old_mode = mode

    def _read_index(self, line: bytes) -> None:
        match = _INDEX.fullmatch(line)
        if match is None:
            raise PatchInvalidError("an 'index' line is not in git's format")
        self.old_blob = match[1]
        if match[2] is not None:
            self.old_mode = _mode(match[2])

    def _read_source(self, line: bytes) -> None:
        kind, which, rest = line.split(b" ", 2)
        self._be(kind.decode())
        name = unquoted(rest)[0] if rest.startswith(b'"') else rest
        self._half_named = not self._half_named
        if which == b"from":
            self._old = name
        else:
            self._new = name

    def _pass(self, _line: bytes) -> None:
        """Ignore the similarity or dissimilarity index."""


_LINES: Final[Mapping[bytes, Callable[[GitHeader, bytes], None]]] = {
    b"old mode ": GitHeader._read_mode,  # noqa: SLF001 - the class's own table
    b"new mode ": GitHeader._read_mode,  # noqa: SLF001
    b"deleted file mode ": GitHeader._read_mode,  # noqa: SLF001
    b"new file mode ": GitHeader._read_mode,  # noqa: SLF001
    b"index ": GitHeader._read_index,  # noqa: SLF001
    b"rename from ": GitHeader._read_source,  # noqa: SLF001
    b"rename to ": GitHeader._read_source,  # noqa: SLF001
    b"copy from ": GitHeader._read_source,  # noqa: SLF001
    b"copy to ": GitHeader._read_source,  # noqa: SLF001
    b"similarity index ": GitHeader._pass,  # noqa: SLF001
    b"dissimilarity index ": GitHeader._pass,  # noqa: SLF001
}


def side_name(text: bytes) -> bytes | None:
    """Return the name after ``---`` or ``+++``, without its first component; ``None`` for ``/dev/null``."""
    name = unquoted(text)[0] if text.startswith(b'"') else _NAME_END.split(text, maxsplit=1)[0]
    return None if name == b"/dev/null" else _stripped(name)


def has_epoch(line: bytes) -> bool:
    """Return whether a ``---`` or ``+++`` line has the timestamp that ``diff -N`` writes for a missing file."""
    return _EPOCH.search(line) is not None


def _stripped(name: bytes) -> bytes:
    """Return ``name`` without its first component: usually ``a`` or ``b``, but as in git, any is allowed."""
    first, slash, rest = name.partition(b"/")
    if not first or not slash:
        raise PatchInvalidError(f"the name {shown(name)} lacks git's prefix 'a/' or 'b/'")
    return rest


def _common_name(text: bytes) -> bytes | None:
    """Return the name that both halves of a ``diff --git`` line share; ``None`` if there is not exactly one."""
    if text.startswith(b'"'):
        first, rest = unquoted(text)
        halves = [(first, _other(rest.removeprefix(b" ")))]
    elif text.endswith(b'"'):
        at = text.find(b' "')
        halves = [(text[:at], _other(text[at + 1 :]))]
    else:
        spaces = [match.start() for match in re.finditer(rb" ", text)]
        halves = [(text[:at], text[at + 1 :]) for at in spaces]
    names = {one.partition(b"/")[2] for one, other in halves if one.partition(b"/")[2] == other.partition(b"/")[2]}
    return names.pop() if len(names) == 1 and b"" not in names else None


def _other(text: bytes) -> bytes:
    return unquoted(text)[0] if text.startswith(b'"') else text


def _mode(text: bytes) -> int:
    try:
        mode = int(text, 8)
    except ValueError:
        mode = -1
    if mode not in MODES:
        raise PatchInvalidError(
            f"unsupported mode {text.decode('ascii', 'replace')!r}: only plain files and links are allowed"
        )
    return mode
