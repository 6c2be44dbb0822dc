"""File trees in memory and on disk, and ``git apply`` for comparison."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from securebench.patches.model import FileVersion

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from securebench.patches.model import Delta

SAFE_ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CEILING_DIRECTORIES": "/",
    "LC_ALL": "C",
}


@dataclass(frozen=True)
class MemoryTree:
    """A file tree in memory."""

    files: Mapping[bytes, FileVersion]

    def get(self, path: bytes) -> FileVersion | None:
        """Return the file at ``path``."""
        return self.files.get(path)


def tree(**files: bytes | str) -> MemoryTree:
    """Return a tree of plain files. In their names, ``__`` stands for a slash and ``_dot_`` for a dot."""
    named = {name.replace("__", "/").replace("_dot_", "."): content for name, content in files.items()}
    return MemoryTree(
        {
            name.encode(): FileVersion(content.encode() if isinstance(content, str) else content)
            for name, content in named.items()
        }
    )


def after(base: MemoryTree, delta: Delta) -> dict[bytes, FileVersion]:
    """Return the files of ``base`` after the changes ``delta``."""
    files = {**base.files, **delta}
    return {path: version for path, version in files.items() if version is not None}


def write_tree(root: Path, files: Mapping[bytes, FileVersion]) -> None:
    """Write ``files`` below ``root``."""
    for path, version in files.items():
        target = root / os.fsdecode(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if version.link:
            target.symlink_to(os.fsdecode(version.content))
        else:
            target.write_bytes(version.content)
            target.chmod(0o755 if version.executable else 0o644)


def read_tree(root: Path) -> dict[bytes, FileVersion]:
    """Return the files below ``root``."""
    return {
        os.fsencode(path.relative_to(root)): FileVersion(os.fsencode(path.readlink()), link=True)
        if path.is_symlink()
        else FileVersion(path.read_bytes(), executable=os.access(path, os.X_OK))
        for path in root.rglob("*")
        if path.is_symlink() or path.is_file()
    }


def git_apply(root: Path, files: Mapping[bytes, FileVersion], patch: bytes) -> dict[bytes, FileVersion] | None:
    """Return ``files`` after ``git apply`` in the empty directory ``root``; ``None`` if git refuses the patch."""
    write_tree(root, files)
    command = ["git", "apply", "--whitespace=nowarn", "-"]
    done = subprocess.run(command, check=False, cwd=root, input=patch, env=SAFE_ENVIRONMENT, capture_output=True)
    return read_tree(root) if done.returncode == 0 else None
