"""The changes that the conformance suite's probe makes in a directory, as a fake's files have them."""

from __future__ import annotations

import errno
import os
import posixpath
import tarfile
from typing import TYPE_CHECKING, TypeAlias

from securebench.sandboxes.base import MIB

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from securebench.testing.fake_files import FakeFiles

Change: TypeAlias = "Callable[[FakeFiles, str], None]"
"""What makes a change in a directory."""


def _refuse(_files: FakeFiles, _directory: str) -> None:
    raise OSError(errno.EPERM, os.strerror(errno.EPERM))


def _make(name: str, kind: bytes = tarfile.REGTYPE, data: bytes = b"", mode: int = 0o644) -> Change:
    """Return the change that puts something in the place of what is at ``name``; of all, where that is empty."""

    def make(files: FakeFiles, directory: str) -> None:
        files.remove_tree(f"{directory}/{name}")
        files.make(f"{directory}/{name}", kind, data, mode)

    return make


def _anew(name: str) -> Change:
    def make(files: FakeFiles, directory: str) -> None:
        files.remove_tree(f"{directory}/{name}")
        files.write(f"{directory}/{name}/only", b"only")

    return make


def _make_sparse(files: FakeFiles, directory: str) -> None:
    files.write(f"{directory}/sparse", b"s")
    files.write(f"{directory}/sparse", b"s" + bytes(64 * MIB - 1))


def _replace_parent(files: FakeFiles, directory: str) -> None:
    parent = posixpath.dirname(directory)
    files.remove_tree(parent)
    files.make(parent, tarfile.SYMTYPE, b"/elsewhere", 0o777)


LIBRARY = "/usr/lib/python3/email"

LIBRARY_FILES: dict[str, bytes] = {
    f"{LIBRARY}/{name}": f"the text of {name}".encode()
    for name in ("charset.py", "decoder.py", "message.py", "parser.py", "policy.py", "mime/base.py", "mime/text.py")
}
"""Files of an image that the probe makes changes in."""

CHANGES: Mapping[str, Change] = {
    "add": _make("added", data=b"new"),
    "add odd": _make("odd \udcff\n-name", data=b"odd"),
    "add deep": _make("deep/er/file", data=b"deep"),
    "edit": _make("message.py", data=b"edited"),
    "remove": lambda files, directory: files.remove(f"{directory}/parser.py"),
    "mode": lambda files, directory: files.change_mode(f"{directory}/policy.py", 0o755),
    "link": _make("link", tarfile.SYMTYPE, b"/etc/passwd", 0o777),
    "file to link": _make("charset.py", tarfile.SYMTYPE, b"../../outside", 0o777),
    "directory": _anew("mime"),
    "directory to link": _make("mime", tarfile.SYMTYPE, b"/etc", 0o777),
    "directory to file": _make("mime", data=b"file"),
    "set id": _make("setid", data=b"x", mode=0o6755),
    "pipe": _make("pipe", tarfile.FIFOTYPE),
    "socket": lambda _files, _directory: None,
    "device": _refuse,
    "removal": _refuse,
    "opaque": lambda _files, _directory: None,
    "sparse": _make_sparse,
    "all removed": lambda files, directory: files.remove_tree(directory),
    "all to link": _make("", tarfile.SYMTYPE, b"/etc", 0o777),
    "all to file": _make("", data=b"file"),
    "all anew": _anew(""),
    "parent to link": _replace_parent,
}
