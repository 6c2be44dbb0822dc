"""A small repository in an image: what is in it, and the traces that an agent may leave in its version control."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from typing import TYPE_CHECKING

from image_archives import directory, file, symlink

if TYPE_CHECKING:
    from pathlib import Path

    from image_archives import Part

WORKDIR = "/srv/repository"
FIXED = b"def add(a, b):\n    return a + b\n"
FILES = {
    "README": b"Adds.\n",
    ".gitignore": b"*.log\nbuild/\n",
    "src/adder/__init__.py": b"from adder.core import add\n",
    "src/adder/core.py": b"def add(a, b):\n    return a - b\n",
    "tests/test_core.py": b"from adder import add\n\n\ndef test_add():\n    assert add(1, 1) == 2\n",
    "data.bin": bytes(range(256)),
    "old/one.txt": b"one\n",
    "old/deep/two.txt": b"two\n",
}
KEPT_CACHE = "fixtures/__pycache__/kept.pyc"
"""Bytecode that the repository has of its own."""


def image_parts(git: Path) -> tuple[Part, ...]:
    """Return the members of the image's layer; ``git`` is a repository's version control data."""
    top = WORKDIR.strip("/")
    return (
        directory(top),
        *(file(f"{top}/{name}", data) for name, data in FILES.items()),
        file(f"{top}/{KEPT_CACHE}", b"bytecode"),
        file(f"{top}/run.py", b"#!/usr/bin/env python3\n", mode=0o755),
        symlink(f"{top}/link", "README"),
        *_below(git, f"{top}/.git"),
    )


def _below(root: Path, name: str) -> list[Part]:
    parts = [directory(name)]
    for path in sorted(root.rglob("*")):
        inner = f"{name}/{path.relative_to(root)}"
        parts.append(directory(inner) if path.is_dir() else file(inner, path.read_bytes()))
    return parts


def make_repository(root: Path) -> None:
    """Make a repository with one commit at ``root``, by the git of this machine: nothing in it is hostile yet."""
    for name, data in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    run_git(root, "init", "--quiet", "--initial-branch=main")
    run_git(root, "add", "--all")
    run_git(root, "commit", "--quiet", "--message", "first")


def run_git(root: Path, *arguments: str) -> None:
    """Run git in a repository of ours, with nobody's configuration."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(root),
        "GIT_CONFIG_NOSYSTEM": "1",
        **{f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in _IDENTITY.items()},
    }
    subprocess.run(["git", *arguments], cwd=root, env=environment, check=True, capture_output=True)


_IDENTITY = {"NAME": "Somebody", "EMAIL": "somebody@example.org", "DATE": "2001-02-03T04:05:06Z"}


def names(archive: bytes) -> set[str]:
    """Return the names in a tar archive."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as members:
        return set(members.getnames())
