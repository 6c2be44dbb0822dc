"""Agents in real repositories: what they changed is the candidate, on every driver, whatever they did to hide it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest

from harnesses import repository
from harnesses.conftest import Bench
from securebench.errors import FailureReason
from securebench.patches.model import FileVersion
from securebench.sandboxes.base import Limits
from securebench.workspaces.removal import remove_tree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from securebench.harnesses.base import Production
    from securebench.patches.model import Delta
    from securebench.sandboxes.base import SandboxDriver
    from securebench.tasks import AgentView


@pytest.fixture
def real(driver: SandboxDriver, tmp_path: Path, host_canary: Path) -> Iterator[Bench]:
    """Give a bench on real sandboxes."""
    bench = Bench(driver, tmp_path, limits=Limits())
    yield bench
    remove_tree(bench.workspace)


def _run(bench: Bench, view: AgentView, script: str, **config: object) -> Production:
    return bench.produce(view, command=("/bin/sh", "-euc", script), **config)


def _delta(bench: Bench, production: Production) -> Delta:
    assert production.candidate is not None, production.failure
    return bench.store.read_patch(production.candidate)


def _write(path: str, content: bytes) -> str:
    return f"mkdir -p {shlex.quote(path)}; rmdir {shlex.quote(path)}; printf %s {shlex.quote(content.decode())} >{path}"


FIX = f"printf %s {shlex.quote(repository.FIXED.decode())} >src/adder/core.py"


def test_every_kind_of_change(real: Bench, repository_view: AgentView) -> None:
    """What is added, changed, removed, made executable, linked and replaced is in the candidate, and nothing else."""
    production = _run(
        real,
        repository_view,
        f"""
        test "$(pwd)" = {repository.WORKDIR}; test -f "$SECUREBENCH_TASK_FILE"; test "$(id -u)" = 0
        {FIX}
        mkdir new; echo new >new/file; ln -s ../elsewhere new/link; ln -s /etc/passwd absolute
        rm README link; rm -r old; echo file >old
        rm data.bin; mkdir data.bin; echo x >data.bin/inside
        chmod a+x .gitignore; chmod 600 tests/test_core.py; touch run.py
        mkdir -p src/adder/__pycache__ .pytest_cache/v; echo x >.pytest_cache/v/x
        echo x >src/adder/__pycache__/core.pyc; echo x >stray.pyc; mkdir empty
        echo changed >{repository.KEPT_CACHE}; echo ignored >it.log
        """,
    )
    assert production.failure is None, production.stderr
    assert dict(_delta(real, production)) == {
        b"src/adder/core.py": FileVersion(repository.FIXED),
        b"new/file": FileVersion(b"new\n"),
        b"new/link": FileVersion(b"../elsewhere", link=True),
        b"absolute": FileVersion(b"/etc/passwd", link=True),
        b"README": None,
        b"link": None,
        b"old": FileVersion(b"file\n"),
        b"old/one.txt": None,
        b"old/deep/two.txt": None,
        b"data.bin": None,
        b"data.bin/inside": FileVersion(b"x\n"),
        b".gitignore": FileVersion(repository.FILES[".gitignore"], executable=True),
        repository.KEPT_CACHE.encode(): FileVersion(b"changed\n"),
        b"it.log": FileVersion(b"ignored\n"),
    }
    assert production.metadata["ignored"] == {"*.pyc": 1, ".git": 1, ".pytest_cache": 1, "__pycache__": 1}


def test_nothing_changed_is_an_empty_candidate(real: Bench, repository_view: AgentView) -> None:
    """C01: an agent that left the repository as it was has failed, also one that touched every file of it."""
    production = _run(real, repository_view, "find . -type f -exec touch {} +; mkdir empty; rm -rf .git")
    assert production.failure is not None
    assert production.failure.reason is FailureReason.CANDIDATE_EMPTY
    assert dict(_delta(real, production)) == {}
