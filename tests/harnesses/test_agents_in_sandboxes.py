"""Agents in real sandboxes: their failures are scored, and they cannot harm the host or other tasks."""

from __future__ import annotations

import grp
import shutil
import tarfile
import time
import tracemalloc
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from harnesses import agent as agent_module
from harnesses.conftest import NEVER_OF_GVISOR, VIEW, WORKSPACE_VIEW, Bench, with_assets
from securebench.errors import FailureReason
from securebench.fs.rmtree import remove_tree
from securebench.harnesses.agent_directory import AGENT_TARGET
from securebench.resources import FileReference
from securebench.sandboxes.base import Limits
from securebench.testing.attacks import trees
from workspaces.users import as_ordinary_user, open_directory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from securebench.harnesses.base import AgentResult
    from securebench.sandboxes.base import SandboxDriver
    from securebench.tasks import AgentView

MIB = 1024 * 1024


@pytest.fixture
def real(driver: SandboxDriver, tmp_path: Path, host_canary: Path) -> Iterator[Bench]:
    """Yield a bench with real sandboxes, and remove its workspace afterwards."""
    bench = Bench(driver, tmp_path, limits=Limits())
    _install_agents(tmp_path / "agents")
    yield bench
    remove_tree(bench.workspace)


def _install_agents(directory: Path) -> None:
    directory.mkdir(mode=0o755)
    for module in (agent_module, trees):
        assert module.__file__ is not None
        shutil.copy(module.__file__, directory)
    for path in (directory, *directory.iterdir()):
        path.chmod(0o755)


def _run(
    bench: Bench, behaviour: str, view: AgentView = VIEW, script: str = "agent.py", **config: object
) -> AgentResult:
    command = ("python3", f"{AGENT_TARGET}/{script}", behaviour)
    return bench.produce(view, command=command, agent_dir=bench.root / "agents", **config)


@pytest.mark.every_driver
def test_an_honest_agent(real: Bench) -> None:
    """An agent can read its task. Its answer is sealed, from stdout or from a file."""
    from_output, from_file = _run(real, "honest"), _run(real, "honest", artifact_path="answer.txt")
    assert (from_output.failure, from_file.failure) == (None, None)
    assert from_output.candidate is not None
    assert from_file.candidate is not None
    assert from_output.candidate.text == "answer to What?\n"
    assert from_file.candidate.text == "from a file"
    assert from_output.image_id.startswith("sha256:")


@pytest.mark.parametrize(
    ("behaviour", "timeout", "reason"),
    [
        ("crash", 30.0, FailureReason.AGENT_EXIT),
        ("hang", 1.5, FailureReason.AGENT_TIMEOUT),
    ],
)
def test_a_failed_agent_is_scored_and_its_work_kept(
    real: Bench, behaviour: str, timeout: float, reason: FailureReason
) -> None:
    """L13, L14: a crash or a timeout is a failure with its own reason, and the work done until then is sealed."""
    agent_result = _run(real, behaviour, artifact_path="answer.txt", timeout_seconds=timeout)
    assert agent_result.failure is not None
    assert agent_result.failure.reason is reason
    assert agent_result.candidate is not None
    assert agent_result.candidate.text == "good work"


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [("nothing", FailureReason.CANDIDATE_EMPTY), ("binary", FailureReason.CANDIDATE_NOT_TEXT)],
)
def test_an_agent_without_an_answer_is_scored(real: Bench, behaviour: str, reason: FailureReason) -> None:
    """E01, B20: an agent that prints nothing, or bytes that are not text, has failed."""
    agent_result = _run(real, behaviour)
    assert agent_result.failure is not None
    assert agent_result.failure.reason is reason


@pytest.mark.parametrize(
    ("writes", "reason"),
    [
        ("[open(f'{n}', 'wb').write(bytes(2**20)) for n in range(99)]", FailureReason.AGENT_WORKSPACE_FULL),
        ("[open(f'{n}', 'wb').close() for n in range(9999)]", FailureReason.AGENT_WORKSPACE_FULL),
        ("f = open('a', 'wb', 0); os.unlink('a'); [f.write(bytes(2**20)) for _ in 9 * '.']", FailureReason.AGENT_EXIT),
    ],
)
def test_a_workspace_has_a_size(real: Bench, writes: str, reason: FailureReason) -> None:
    """I11, H07, H08, H20: bytes, inodes and deleted open files are limited, and files that fit are kept."""
    if not real.driver.bounds_directories:
        pytest.skip("this driver has no limit")
    real.limits = replace(real.limits, workspace=8 * MIB)
    agent_result = real.produce(command=("python3", "-c", f"import os; open('first', 'w').write('1'); {writes}"))
    assert agent_result.failure is not None
    assert agent_result.failure.reason is reason
    assert "No space left on device" in agent_result.stderr
    assert sum(path.stat().st_size for path in real.workspace.iterdir()) <= 8 * MIB
    assert (real.workspace / "first").read_text() == "1"
    assert [path.name for path in real.workspace.parent.iterdir() if path.name.endswith(".bounded")] == []


def test_a_gigabyte_of_output_costs_little(real: Bench) -> None:
    """I12: an agent that prints a gigabyte is ended, in bounded time and memory."""
    started = time.monotonic()
    tracemalloc.start()
    try:
        agent_result = _run(real, "gigabyte")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert agent_result.failure is not None
    assert agent_result.failure.reason is FailureReason.AGENT_OUTPUT_LIMIT
    assert agent_result.candidate is None
    assert peak < 48 * MIB
    assert time.monotonic() - started < 30


@pytest.mark.every_driver
def test_a_survivor_is_gone_before_anything_is_read(real: Bench) -> None:
    """A05: a daemon that keeps changing a file is dead when the workspace is sealed: nothing changes afterwards."""
    agent_result = _run(real, "survivor", WORKSPACE_VIEW)
    flipping = real.workspace / "flipping"
    before = (flipping.read_bytes(), flipping.stat().st_mtime_ns)
    time.sleep(0.5)
    assert (flipping.read_bytes(), flipping.stat().st_mtime_ns) == before
    assert agent_result.candidate is not None
    with tarfile.open(agent_result.candidate.path) as archive:
        member = archive.extractfile("flipping")
        assert member is not None
        assert member.read() == before[0]
    assert real.store.load(agent_result.candidate.kind, agent_result.candidate.digest) == agent_result.candidate


@pytest.mark.usefixtures("no_tools")
@pytest.mark.parametrize("name", trees.TRAPS)
def test_hostile_workspaces(real: Bench, host_canary: Path, name: str) -> None:
    """G, H: each trap that an agent sets in its workspace is sealed as data or is a failure, and can be removed."""
    trap = trees.TRAPS[name]
    agent_result = _run(real, name, WORKSPACE_VIEW, script="trees.py")
    reasons = {
        trees.SEALED: None,
        trees.UNSAFE: FailureReason.UNSAFE_WORKSPACE,
        trees.TOO_LARGE: FailureReason.CANDIDATE_TOO_LARGE,
    }
    outcome = trees.SEALED if name in NEVER_OF_GVISOR and real.is_gvisor else trap.outcome
    assert (agent_result.failure and agent_result.failure.reason) == reasons[outcome], agent_result.stderr
    assert agent_result.metadata["exit_code"] == 0


@pytest.mark.parametrize("kind", ["link", "fifo"])
def test_a_trap_in_the_place_of_the_answer(real: Bench, kind: str) -> None:
    """H01, H05: an answer that is a link or a FIFO is refused. A FIFO in gVisor is missing on the host."""
    make = "ln -s /etc/passwd answer" if kind == "link" else "mkfifo answer"
    agent_result = real.produce(command=("/bin/sh", "-c", make), artifact_path="answer")
    missing = kind in NEVER_OF_GVISOR and real.is_gvisor
    assert agent_result.failure is not None
    assert agent_result.failure.reason is (
        FailureReason.CANDIDATE_MISSING if missing else FailureReason.UNSAFE_WORKSPACE
    )
    assert agent_result.candidate is None


def test_privileged_things_are_refused(real: Bench) -> None:
    """H04, H05, I18: an agent cannot create devices, hard-link system files, change owners, mount, or edit itself."""
    assert _run(real, "privileges").stdout == "done\n"


def test_nothing_is_left_for_the_next_task(real: Bench) -> None:
    """F11, A24: files that an agent writes, in its workspace or elsewhere, do not exist for the next agent."""
    first, second = _run(real, "notes"), _run(real, "notes")
    assert first.stdout == second.stdout
    assert "True" not in second.stdout


def test_a_read_only_asset_stays(real: Bench, tmp_path: Path) -> None:
    """D10: inside the directory of a read-only asset, an agent cannot write, remove, rename or replace the asset."""
    view = with_assets(VIEW, _pack(tmp_path), FileReference("input.csv", "data/input.csv"))
    assert _run(real, "read_only_asset", view).stdout == "1,2\n"


def test_a_read_only_asset_moved_away_is_tampering(real: Bench, tmp_path: Path) -> None:
    """D10: an agent can rename the directory of a read-only asset and put another file there.

    The digest of the asset shows that after the agent has ended, and the agent has failed.
    """
    view = with_assets(WORKSPACE_VIEW, _pack(tmp_path), FileReference("input.csv", "data/input.csv"))
    agent_result = _run(real, "replace_directory", view)
    assert agent_result.failure is not None
    assert agent_result.failure.reason is FailureReason.TAMPERED


def test_a_read_only_directory_stays(real: Bench, tmp_path: Path) -> None:
    """D10: an agent cannot create files in a read-only directory asset."""
    view = with_assets(VIEW, _pack(tmp_path).parent, FileReference("pack", "data"))
    agent_result = real.produce(view, command=("/bin/sh", "-c", "cat data/input.csv; echo x > data/new"))
    assert agent_result.stdout == "1,2"
    # gVisor checks the mode of the directory before it notices the read-only mount.
    refusals = ["Read-only file system", *(["Permission denied"] if real.is_gvisor else [])]
    assert any(refusal in agent_result.stderr for refusal in refusals)


def _pack(root: Path) -> Path:
    (root / "pack").mkdir()
    (root / "pack/input.csv").write_text("1,2")
    return root / "pack"


@pytest.mark.engine
@pytest.mark.usefixtures("base_image")  # imports modules early: the ordinary user may be unable to read them
def test_an_ordinary_user_of_the_docker_group_runs_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    """An ordinary user can run agents, seal a workspace and remove it, because the agents' files belong to that user.

    A workspace with a directory that its agent locked is unsafe, but can be removed.
    """
    with open_directory() as root:
        monkeypatch.setenv("HOME", str(root))  # this user's image store would be there

        def run() -> None:
            from securebench.sandboxes.docker.driver import DockerDriver

            _install_agents(root / "agents")
            driver = DockerDriver(run_id="tests-user")
            bench = Bench(driver, root, limits=Limits())
            honest = _run(bench, "honest", replace(WORKSPACE_VIEW, environment=VIEW.environment))
            assert honest.failure is None, honest.stderr
            locked = _run(bench, "locked_directory", WORKSPACE_VIEW, script="trees.py")
            assert locked.failure is not None
            assert locked.failure.reason is FailureReason.UNSAFE_WORKSPACE
            remove_tree(bench.workspace)
            driver.close()

        as_ordinary_user(run, grp.getgrnam("docker").gr_gid)
