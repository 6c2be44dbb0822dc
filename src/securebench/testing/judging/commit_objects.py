"""The objects of a git repository with one commit, so that programs find a whole repository."""

from __future__ import annotations

import hashlib
import zlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_BY: Final = "SecureBench <securebench@example.org> 0 +0000"


class CommitObjects:
    """The loose objects of a commit of ``files``. ``stored`` maps paths such as ``.git/objects/…`` to content."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self.stored: dict[str, bytes] = {}
        tree = self._tree({path: text.encode() for path, text in files.items()})
        self.commit = self._add("commit", f"tree {tree}\nauthor {_BY}\ncommitter {_BY}\n\nBegin\n".encode())
        """The id of the commit."""

    def _tree(self, files: Mapping[str, bytes]) -> str:
        """Add a directory, and return its id. ``files`` are its files by relative path."""
        entries: dict[str, bytes] = {}
        for name in {path.partition("/")[0] for path in files}:
            inside = {path.partition("/")[2]: data for path, data in files.items() if path.startswith(f"{name}/")}
            mode, number = ("40000", self._tree(inside)) if inside else ("100644", self._add("blob", files[name]))
            # git sorts a directory as if its name ended in a slash
            entries[f"{name}/" if inside else name] = f"{mode} {name}".encode() + b"\0" + bytes.fromhex(number)
        return self._add("tree", b"".join(entries[name] for name in sorted(entries, key=str.encode)))

    def _add(self, kind: str, content: bytes) -> str:
        data = f"{kind} {len(content)}".encode() + b"\0" + content
        number = hashlib.sha1(data, usedforsecurity=False).hexdigest()
        self.stored[f".git/objects/{number[:2]}/{number[2:]}"] = zlib.compress(data)
        return number
