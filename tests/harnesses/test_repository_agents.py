"""Agents in real repositories: what they changed is the candidate, on every driver, whatever they did to hide it."""

from __future__ import annotations

import shlex
import shutil
from typing import TYPE_CHECKING

import pytest

from harnesses import repository
from harnesses.conftest import Bench
from securebench.errors import FailureReason
from securebench.harnesses.command import AGENT_TARGET
from securebench.patches.model import FileVersion
from securebench.sandboxes.base import Limits
from securebench.sandboxes.docker import DockerDriver
from securebench.workspaces.removal import remove_tree
from workspaces import hostile

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


MAX_SECONDS = 60.0
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


def test_a_patch_that_the_agent_writes(real: Bench, repository_view: AgentView) -> None:
    """With an artifact path the candidate is what that patch makes of the repository, whatever else the agent did."""
    patch = """--- a/src/adder/core.py
+++ b/src/adder/core.py
@@ -1,2 +1,2 @@
 def add(a, b):
-    return a - b
+    return a + b
"""
    script = f"umask 077; printf %s {shlex.quote(patch)} >/workspace/fix.patch; rm -rf src; echo x >other"
    production = _run(real, repository_view, script, artifact_path="fix.patch")
    assert production.failure is None, production.failure
    assert dict(_delta(real, production)) == {b"src/adder/core.py": FileVersion(repository.FIXED)}


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        ("true", FailureReason.CANDIDATE_MISSING),
        (": >/workspace/fix.patch", FailureReason.CANDIDATE_EMPTY),
        ("echo no patch >/workspace/fix.patch", FailureReason.PATCH_INVALID),
        (
            r"printf '%s\n' '--- a/README' '+++ b/README' '@@ -1 +1 @@' '-Other.' '+New.' >/workspace/fix.patch",
            FailureReason.PATCH_DOES_NOT_APPLY,
        ),
        ("ln -s /etc/passwd /workspace/fix.patch", FailureReason.UNSAFE_WORKSPACE),
        ("mkfifo /workspace/fix.patch", FailureReason.UNSAFE_WORKSPACE),
        ("truncate -s 1G /workspace/fix.patch", FailureReason.CANDIDATE_TOO_LARGE),
    ],
)
def test_a_patch_that_is_none(real: Bench, repository_view: AgentView, make: str, reason: FailureReason) -> None:
    """C16, H01, H05: a patch that is missing, empty, no patch, of another tree, a trap or too large has its reason."""
    production = _run(real, repository_view, make, artifact_path="fix.patch")
    assert production.failure is not None
    assert production.failure.reason is reason


REASONS = {
    hostile.SEALED: None,
    hostile.UNSAFE: FailureReason.UNSAFE_WORKSPACE,
    hostile.TOO_LARGE: FailureReason.CANDIDATE_TOO_LARGE,
}


@pytest.mark.usefixtures("no_tools")
@pytest.mark.parametrize("name", hostile.TRAPS)
def test_hostile_repositories(real: Bench, repository_view: AgentView, name: str) -> None:
    """G, H: each trap in a repository is sealed as data or a typed failure, in bounded time, and no tool is run."""
    trap = hostile.TRAPS[name]
    _install(real.root / "agents")
    production = real.produce(
        repository_view, command=("python3", f"{AGENT_TARGET}/hostile.py", name), agent_dir=real.root / "agents"
    )
    expected = REASONS[trap.in_repository]
    if name == "unix_socket" and isinstance(real.driver, DockerDriver):
        expected = FailureReason.CANDIDATE_EMPTY  # an engine's archives have no sockets
    assert (production.failure and production.failure.reason) is expected, (production.failure, production.stderr)
    assert production.metadata["exit_code"] == 0
    assert production.duration_seconds < MAX_SECONDS


@pytest.mark.usefixtures("no_tools")
@pytest.mark.parametrize("name", [name for name in hostile.TRAPS if name != "locked_workspace"])  # it is not its own
def test_hostile_workspaces_beside_a_repository(real: Bench, repository_view: AgentView, name: str) -> None:
    """H: what a container's root leaves in the workspace beside the repository harms nobody, and can be removed."""
    _install(real.root / "agents")
    build = f"{FIX}; cd /workspace; exec python3 {AGENT_TARGET}/hostile.py {name}"
    production = _run(real, repository_view, build, agent_dir=real.root / "agents")
    assert production.failure is None, (production.failure, production.stderr)
    assert dict(_delta(real, production)) == {b"src/adder/core.py": FileVersion(repository.FIXED)}
    assert production.duration_seconds < MAX_SECONDS
    remove_tree(real.workspace)


def _install(directory: Path) -> None:
    directory.mkdir(mode=0o755)
    assert hostile.__file__ is not None
    shutil.copy(hostile.__file__, directory)
    (directory / "hostile.py").chmod(0o755)


@pytest.mark.parametrize("name", repository.VARIANTS)
def test_version_control_says_nothing(
    real: Bench, repository_view: AgentView, tmp_path: Path, request: pytest.FixtureRequest, name: str
) -> None:
    """C23, C25: whatever an agent makes of the repository's history, index and rules, its candidate is the same."""
    honest = _run(real, repository_view, FIX)
    repository.make_variant(tmp_path / "variants" / name, name)
    request.getfixturevalue("no_tools")
    script = f"{FIX}; rm -rf .git; if test -e {AGENT_TARGET}/.git; then cp -r {AGENT_TARGET}/.git .git; fi"
    production = _run(real, repository_view, script, agent_dir=tmp_path / "variants" / name)
    assert production.failure is None, production.stderr
    assert honest.candidate is not None
    assert production.candidate == honest.candidate
