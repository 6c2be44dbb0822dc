"""Create repositories with git, to test code that reads and writes them without git."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_AUTHOR_NAME": "A",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "A",
    "GIT_COMMITTER_EMAIL": "a@example.org",
}


def git(directory: Path, *arguments: str) -> str:
    """Run git in ``directory``, and return its standard output without surrounding space."""
    argv = ["git", "-c", "init.defaultBranch=main", "-c", "safe.directory=*", *arguments]
    done = subprocess.run(
        argv, cwd=directory, check=True, capture_output=True, text=True, env=os.environ | _ENVIRONMENT
    )
    return done.stdout.strip()


def commit(directory: Path, message: str = "a change") -> str:
    """Commit all files, including ignored ones, and return the hash of the commit."""
    git(directory, "add", "--all", "--force")
    git(directory, "commit", "--quiet", "--allow-empty", "--message", message)
    return git(directory, "rev-parse", "HEAD")


def repository(directory: Path) -> Path:
    """Create an empty repository in ``directory``, and return the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    git(directory, "init", "--quiet")
    return directory
