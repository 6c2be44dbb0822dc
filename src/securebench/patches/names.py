"""File names in patches: git's quoting, and names that are not allowed."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Final

from securebench.patches.model import PatchInvalidError

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_PATH_BYTES: Final = 4096
MAX_NAME_BYTES: Final = 255
MAX_DEPTH: Final = 64

_ESCAPES: Final = {
    b"a": b"\a",
    b"b": b"\b",
    b"t": b"\t",
    b"n": b"\n",
    b"v": b"\v",
    b"f": b"\f",
    b"r": b"\r",
    b'"': b'"',
    b"\\": b"\\",
}
_ESCAPED: Final = {value[0]: b"\\" + name for name, value in _ESCAPES.items()}
_QUOTED = re.compile(rb'"((?:[^"\\\n]|\\[abtnvfr"\\]|\\[0-3][0-7]{2})*)"')
_ESCAPE = re.compile(rb'\\(?:([abtnvfr"\\])|([0-7]{3}))')
_IGNORED = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")
_SHORT_GIT = re.compile(r"git~\d+")
_SPACE, _DELETE = 0x20, 0x7F


def quoted(name: bytes) -> bytes:
    """Return ``name`` as git writes it: quoted if it contains special bytes. Always ASCII.

    Unlike git, this also quotes a path in which the name of a directory ends with a space. git does not quote such a
    path, and then cannot read its own patch: it looks for the second name of a ``diff --git`` line after each space,
    and gives up at a space that is followed by ``/``.
    """
    if b" /" not in name and all(_SPACE <= byte < _DELETE and byte not in _ESCAPED for byte in name):
        return name
    return b'"' + b"".join(_escaped(byte) for byte in name) + b'"'


def _escaped(byte: int) -> bytes:
    if byte in _ESCAPED:
        return _ESCAPED[byte]
    return bytes([byte]) if _SPACE <= byte < _DELETE else b"\\%03o" % byte


def unquoted(text: bytes) -> tuple[bytes, bytes]:
    """Decode the quoted name at the beginning of ``text``. Return it and the rest of ``text``.

    Raises :class:`PatchInvalidError`.
    """
    match = _QUOTED.match(text)
    if match is None:
        raise PatchInvalidError("a quoted name in the patch is not terminated or contains an unknown escape")
    name = _ESCAPE.sub(lambda found: _ESCAPES[found[1]] if found[1] else bytes([int(found[2], 8)]), match[1])
    return name, text[match.end() :]


def path_fault(path: bytes) -> str:
    """Return why ``path`` is not allowed in a repository, or an empty string."""
    if not path or b"\0" in path:
        return "is empty or contains a NUL byte"
    if path.startswith(b"/"):
        return "is absolute"
    names = path.split(b"/")
    if any(name in (b"", b".", b"..") for name in names):
        return "contains '..', '.' or an empty name"
    if len(path) > MAX_PATH_BYTES or len(names) > MAX_DEPTH or max(map(len, names)) > MAX_NAME_BYTES:
        return "is too long or too deep"
    return "is inside '.git'" if any(map(is_git_directory, names)) else ""


def is_git_directory(name: bytes) -> bool:
    """Return whether git or a file system treats ``name`` (for example ``.GIT`` or ``git~1``) as ``.git``."""
    text = _IGNORED.sub("", name.decode("utf-8", "surrogateescape"))
    folded = unicodedata.normalize("NFKC", text).casefold()
    stems = (part.partition(":")[0].rstrip(" .") for part in folded.split("\\"))
    return any(stem == ".git" or _SHORT_GIT.fullmatch(stem) for stem in stems)


def parents(path: bytes) -> Iterator[bytes]:
    """Yield the parent directories of ``path``, topmost first."""
    at = path.find(b"/")
    while at >= 0:
        yield path[:at]
        at = path.find(b"/", at + 1)


def shown(path: bytes) -> str:
    """Return ``path`` for people: on one line, in ASCII."""
    return quoted(path).decode("ascii")
