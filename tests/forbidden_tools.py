"""Shims on PATH that detect whether a tool such as git, tar or pip was run on the host.

The code under test must not run such tools over an agent's files. Some of them obey configuration in these files.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOOLS = (
    *("git", "git-upload-pack", "hg", "svn", "bzr", "cvs", "npm", "npx", "node", "yarn", "pip", "pip3", "uv", "make"),
    *("patch", "diff", "tar", "unzip", "gzip", "cp", "rm", "python", "python3", "pytest", "tox", "cargo", "go"),
)


@pytest.fixture
def no_tools(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail a test that runs one of ``TOOLS`` by its name."""
    shims = tmp_path_factory.mktemp("shims")
    log = shims / "log"
    for name in TOOLS:
        _shim(shims / name, log)
    monkeypatch.setenv("PATH", f"{shims}:{os.environ['PATH']}")
    yield
    assert not log.exists(), f"run on the host: {log.read_text()}"


def _shim(path: Path, log: Path) -> None:
    path.write_text(f'#!/bin/sh\necho "$0 $*" >>{log}\nexit 1\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
