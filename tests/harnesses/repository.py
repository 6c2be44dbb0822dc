"""A small repository for an image: its files, and ways in which an agent may manipulate its version control data."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

from image_archives import directory, file, symlink

if TYPE_CHECKING:
    from collections.abc import Callable
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
"""A bytecode file that is part of the repository."""


def image_parts(git: Path) -> tuple[Part, ...]:
    """Return the members of the image's layer. ``git`` is the repository's ``.git`` directory."""
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
    """Make a repository with one commit at ``root``, using the host's git: nothing in the repository is hostile yet."""
    for name, data in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    run_git(root, "init", "--quiet", "--initial-branch=main")
    run_git(root, "add", "--all")
    run_git(root, "commit", "--quiet", "--message", "first")


def run_git(root: Path, *arguments: str) -> None:
    """Run the host's git in a trusted repository, without the configuration of the user or the system."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(root),
        "GIT_CONFIG_NOSYSTEM": "1",
        **{f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in _IDENTITY.items()},
    }
    subprocess.run(["git", *arguments], cwd=root, env=environment, check=True, capture_output=True)


_IDENTITY = {"NAME": "Somebody", "EMAIL": "somebody@example.org", "DATE": "2001-02-03T04:05:06Z"}


def make_variant(root: Path, name: str) -> None:
    """Make a repository at ``root`` that contains the fix, and hide the fix from git with the variant ``name``."""
    root.mkdir(parents=True)
    make_repository(root)
    (root / "src/adder/core.py").write_bytes(FIXED)
    VARIANTS[name](root)
    for path in (root, *root.rglob("*")):
        path.chmod(path.stat().st_mode | 0o055)  # root in a sandbox may be another user on the host


def _commands(*commands: str) -> Callable[[Path], None]:
    def run(root: Path) -> None:
        for command in commands:
            run_git(root, *command.split())

    return run


def _written(path: str, content: bytes) -> Callable[[Path], None]:
    def write(root: Path) -> None:
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_bytes(content)

    return write


def _removed(root: Path) -> None:
    shutil.rmtree(root / ".git")


def _exchanged_for_a_file(root: Path) -> None:
    _removed(root)
    (root / ".git").write_text("gitdir: /nowhere\n")


_GITLINK = f"160000,{'12' * 20},src"
_COMMIT = "commit --quiet --all --message fix"
VARIANTS: dict[str, Callable[[Path], None]] = {
    "commit": _commands(_COMMIT),
    "stash": _commands("stash"),
    "reset": _commands(_COMMIT, "reset --quiet --hard HEAD~1"),
    "detach": _commands(_COMMIT, "checkout --quiet --detach HEAD"),
    "amend": _commands("commit --quiet --all --amend --message first"),
    "replace": _commands("tag base", _COMMIT, "replace base HEAD"),
    "another_branch": _commands("checkout --quiet -b other", _COMMIT),
    "assume_unchanged": _commands("update-index --assume-unchanged src/adder/core.py"),
    "skip_worktree": _commands("update-index --skip-worktree src/adder/core.py"),
    "gitlink": _commands(
        "rm -r --quiet --cached src",
        f"update-index --add --cacheinfo {_GITLINK}",
    ),
    "worktree_elsewhere": _commands("config core.worktree /etc"),
    "bare": _commands("config core.bare true"),
    "sparse": _commands("config core.sparseCheckout true"),
    "excluded": _written(".git/info/exclude", b"*\n"),
    "attributes": _written(".git/info/attributes", b"* -diff -text binary filter=x ident\n"),
    "broken_index": _written(".git/index", b"DIRC\xff\xff\xff\xff"),
    "locked_index": _written(".git/index.lock", b""),
    "broken_config": _written(".git/config", b"[no configuration\n"),
    "broken_head": _written(".git/HEAD", b"ref: refs/heads/nowhere\n"),
    "removed": _removed,
    "a_file": _exchanged_for_a_file,
}
"""Ways to hide a change from git. Each function applies one of them to a repository that contains the fix."""
