"""The pipeline gives an agent its workspace, runs it, and returns a candidate or a typed failure."""

from __future__ import annotations

import json
import os
import stat
import tarfile
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from harnesses.conftest import PATCH_VIEW, VIEW, WORKSPACE_VIEW, Bench, with_assets
from securebench.candidates.extraction import MAX_CANDIDATE_BYTES
from securebench.errors import (
    EngineError,
    FailurePhase,
    FailureReason,
    ImageError,
    MaterializationError,
    PathPolicyError,
    StorageError,
)
from securebench.patches.model import FileVersion
from securebench.progress import EventKind
from securebench.resources import FileReference
from securebench.sandboxes.base import MIB, Limits, Mount, workspace_user
from securebench.sandboxes.collected import CollectedLayer
from securebench.tasks import CandidateKind, Environment
from securebench.testing.attacks import trees
from selected import small_trap, variants

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.sandboxes.base import SandboxSpec
    from securebench.tasks import AgentView
    from securebench.testing.scripted_sandbox import ProgramContext, ScriptedDriver, ScriptedProgram


def _writes(name: str, data: bytes) -> ScriptedProgram:
    def program(context: ProgramContext) -> None:
        context.path(name).write_bytes(data)

    return program


def _spec(scripted: ScriptedDriver) -> SandboxSpec:
    return scripted.commands[-1][0]


class TestWhatTheAgentFinds:
    """The files, the environment and the sandbox that an agent gets."""

    def test_its_task_and_nothing_else(self, bench: Bench, scripted: ScriptedDriver) -> None:
        """Contract 6: a workspace contains only task.json and the public values, without the task's id."""
        seen = {}

        @scripted.program("agent")
        def agent(context: ProgramContext) -> None:
            root = context.path()
            seen.update({str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()})
            task = context.path(context.environment["SECUREBENCH_TASK_FILE"]).read_bytes()
            context.stdout.write(json.loads(task)["question"])

        agent_result = bench.produce()
        assert agent_result.candidate is not None
        assert agent_result.candidate.text == "What?"
        assert set(seen) == {"task.json", "securebench/public/question.json"}
        assert b"pack/task-1" not in b"".join(seen.values())

    def test_nothing_of_the_last_run(self, bench: Bench, scripted: ScriptedDriver) -> None:
        """F11: files that one agent left in its workspace are gone when the next agent starts."""

        @scripted.program("agent")
        def agent(context: ProgramContext) -> None:
            root = context.path()
            context.stdout.write(f"{sorted(p.name for p in root.iterdir())}")
            (root / "notes").write_text("for the next one")

        first, second = bench.produce(), bench.produce()
        assert first.candidate == second.candidate

    def test_a_strict_sandbox(self, bench: Bench, scripted: ScriptedDriver) -> None:
        """The sandbox has no network and no capabilities, and the workspace is its only writable mount."""
        scripted.program("agent")(lambda context: context.stdout.write("x"))
        bench.produce()
        spec = _spec(scripted)
        assert (spec.network, spec.cap_drop, spec.cap_add, spec.read_only) == ("none", ("ALL",), (), True)
        assert spec.security_opt == ("no-new-privileges:true",)
        assert spec.mounts == (Mount(bench.workspace, "/workspace", read_only=False),)
        assert (spec.workdir, spec.user, spec.limits) == ("/workspace", workspace_user(), bench.limits)
        assert spec.labels == {"securebench.test": "yes"}

    def test_the_images_environment_and_the_testers(self, bench: Bench, scripted: ScriptedDriver) -> None:
        """An agent gets the variables of its image and of the tester. If both set a variable, the tester's value holds.

        The image cannot set HOME, and the tester cannot set SECUREBENCH_TASK_FILE.
        """
        scripted.add_image("bench:1", environment={"PATH": "/opt/conda/bin:/bin", "HOME": "/root", "MODE": "image"})
        scripted.program("agent")(lambda context: context.stdout.write(json.dumps(context.environment)))
        bench.environment = {"API_KEY": "key", "MODE": "tester", "SECUREBENCH_TASK_FILE": "elsewhere"}
        agent_result = bench.produce(replace(VIEW, environment=Environment(image="bench:1")))
        assert json.loads(agent_result.stdout) == {
            "PATH": "/opt/conda/bin:/bin",
            "HOME": "/tmp",
            "LANG": "C.UTF-8",
            "LC_ALL": "C.UTF-8",
            "API_KEY": "key",
            "MODE": "tester",
            "SECUREBENCH_TASK_FILE": "/workspace/task.json",
        }

    def test_a_private_place(self, bench: Bench, scripted: ScriptedDriver) -> None:
        """H06: other users of the host cannot reach a workspace; its files belong to the sandbox's user."""
        scripted.program("agent")(lambda context: context.stdout.write("x"))
        bench.produce()
        assert stat.S_IMODE(bench.workspace.parent.stat().st_mode) == 0o700
        owners = {(p.stat().st_uid, p.stat().st_gid) for p in (bench.workspace, bench.workspace / "task.json")}
        assert owners == {workspace_user()}

    def test_a_run_directory_behind_a_link(self, scripted: ScriptedDriver, tmp_path: Path) -> None:
        """A symbolic link in the path of the run directory is resolved before the workspace is mounted."""
        (tmp_path / "real").mkdir()
        (tmp_path / "link").symlink_to("real")
        scripted.program("agent")(lambda context: context.stdout.write("x"))
        assert Bench(scripted, tmp_path / "link").produce().failure is None
        assert _spec(scripted).mounts[0].source == tmp_path / "real/workspaces/task-1"

    def test_a_terminal_task_at_its_workdir(self, bench: Bench, scripted: ScriptedDriver) -> None:
        """Contract 6: the workspace of a terminal task is mounted at environment.workdir."""
        scripted.program("agent")(lambda context: context.stdout.write(context.environment["SECUREBENCH_TASK_FILE"]))
        agent_result = bench.produce(WORKSPACE_VIEW)
        assert agent_result.stdout == "/app/task.json"
        assert (_spec(scripted).workdir, _spec(scripted).mounts[0].target) == ("/app", "/app")

    def test_a_read_only_asset_behind_a_read_only_mount(
        self, bench: Bench, scripted: ScriptedDriver, tmp_path: Path
    ) -> None:
        """D10: only read-only assets have a read-only mount of their own over the writable workspace."""
        (tmp_path / "pack").mkdir()
        (tmp_path / "pack/a.csv").write_text("1")
        (tmp_path / "pack/b.csv").write_text("2")
        files = (FileReference("a.csv", "data/a.csv"), FileReference("b.csv", "data/b.csv", read_only=False))

        scripted.program("agent")(lambda context: context.stdout.write("x"))
        bench.produce(with_assets(VIEW, tmp_path / "pack", *files))
        assert _spec(scripted).mounts[1:] == (Mount(bench.workspace / "data/a.csv", "/workspace/data/a.csv"),)

    @pytest.mark.parametrize(("task", "tester", "expected"), [(5.0, 30.0, 5.0), (60.0, 30.0, 30.0), (None, 30.0, 30.0)])
    def test_the_shorter_time_limit(
        self, bench: Bench, scripted: ScriptedDriver, task: float | None, tester: float, expected: float
    ) -> None:
        """The shorter of the tester's and the task's time limits applies."""
        scripted.program("agent")(lambda context: context.stdout.write("x"))
        bench.produce(replace(VIEW, environment=Environment(timeout_seconds=task)), timeout_seconds=tester)
        assert scripted.commands[-1][1].timeout_seconds == expected


class TestCandidates:
    """Candidates of agents that exit with status 0."""

    def test_its_output(self, bench: Bench, scripted: ScriptedDriver) -> None:
        """Without an artifact path the candidate is the agent's stdout, and stderr is only recorded."""

        @scripted.program("agent")
        def agent(context: ProgramContext) -> None:
            context.stderr.write("thinking\n")
            context.stdout.write("the answer\n")

        agent_result = bench.produce()
        assert agent_result.failure is None
        assert agent_result.candidate is not None
        assert (agent_result.candidate.text, agent_result.candidate.kind) == ("the answer\n", CandidateKind.TEXT)
        assert (agent_result.stdout, agent_result.stderr) == ("the answer\n", "thinking\n")
        assert agent_result.image_id == scripted.resolve_image("securebench/python:3.11").id
        assert agent_result.metadata == {
            "harness": "command",
            "exit_code": 0,
            "timeout_seconds": 30.0,
            "stdout_truncated": False,
            "stderr_truncated": False,
        }

    def test_its_file(self, bench: Bench, scripted: ScriptedDriver) -> None:
        """With an artifact path the candidate is that file, and not the agent's stdout."""

        @scripted.program("agent")
        def agent(context: ProgramContext) -> None:
            context.stdout.write("not this")
            context.path("out").mkdir()
            context.path("out/candidate.py").write_bytes(b"x = 1\n")

        agent_result = bench.produce(replace(VIEW, candidate_kind=CandidateKind.CODE), artifact_path="out/candidate.py")
        assert agent_result.candidate is not None
        assert (agent_result.candidate.text, agent_result.candidate.kind) == ("x = 1\n", CandidateKind.CODE)

    def test_its_workspace(self, bench: Bench, scripted: ScriptedDriver) -> None:
        """The candidate of a terminal task is the whole workspace, as the agent left it."""
        scripted.program("agent")(_writes("result.txt", b"done"))
        agent_result = bench.produce(WORKSPACE_VIEW)
        assert agent_result.candidate is not None
        with tarfile.open(agent_result.candidate.path) as archive:
            assert "result.txt" in archive.getnames()
        assert agent_result.candidate == bench.store.load(CandidateKind.WORKSPACE, agent_result.candidate.digest)

    def test_what_it_prints_is_reported_by_line(self, bench: Bench, scripted: ScriptedDriver) -> None:
        """Each event contains whole lines, except for an unterminated last one. The harness emits no other events."""

        @scripted.program("agent")
        def agent(context: ProgramContext) -> None:
            for part in ("first ", "line\nsecond", " line\nlast"):
                context.stdout.write(part)

        bench.produce()
        assert "".join(str(text) for _, text in bench.agent_output()) == "first line\nsecond line\nlast"
        assert all(str(text).endswith("\n") for _, text in bench.agent_output()[:-1])
        assert {event.kind for event in bench.events} == {EventKind.AGENT_OUTPUT}


class TestAgentFailures:
    """Agents that fail: the result is a scored failure, never an exception."""

    @pytest.mark.parametrize(
        ("behaviour", "reason"),
        [
            ("crash", FailureReason.AGENT_EXIT),
            ("hang", FailureReason.AGENT_TIMEOUT),
            ("flood", FailureReason.AGENT_OUTPUT_LIMIT),
            ("memory", FailureReason.AGENT_OUT_OF_MEMORY),
            ("absent", FailureReason.AGENT_EXIT),
        ],
    )
    def test_a_failed_agent_is_a_failure_with_its_evidence(
        self, bench: Bench, scripted: ScriptedDriver, behaviour: str, reason: FailureReason
    ) -> None:
        """L13, L14: a crash, a time-out, a flood and a memory bomb have different reasons.

        The file that the agent wrote is sealed. An agent whose program does not exist has the reason of a crash.
        """

        def agent(context: ProgramContext) -> int:
            context.path("answer").write_bytes(b"good work")
            if behaviour == "hang":
                context.sleep(60)
            while behaviour == "flood":
                context.stdout.write(b"y" * 65536)
            if behaviour == "memory":
                context.run_out_of_memory()
            return 3

        if behaviour != "absent":
            scripted.program("agent")(agent)
        agent_result = bench.produce(artifact_path="answer", timeout_seconds=0.5)
        assert agent_result.failure is not None
        assert (agent_result.failure.reason, agent_result.failure.phase) == (reason, FailurePhase.PRODUCE)
        if behaviour != "absent":
            assert agent_result.candidate is not None
            assert agent_result.candidate.text == "good work"

    def test_the_agents_failure_comes_before_that_of_its_candidate(
        self, bench: Bench, scripted: ScriptedDriver
    ) -> None:
        """If an agent crashes and leaves no file, the failure is the crash; the missing file is in the metadata."""
        scripted.program("agent")(lambda context: 7)
        agent_result = bench.produce(artifact_path="answer")
        assert agent_result.failure is not None
        assert agent_result.failure.reason is FailureReason.AGENT_EXIT
        assert "status 7" in agent_result.failure.message
        assert agent_result.metadata["seal_failure"] == {
            "reason": "candidate_missing",
            "message": "answer: does not exist",
        }

    @pytest.mark.parametrize(
        ("output", "reason"),
        [
            (b"", FailureReason.CANDIDATE_EMPTY),
            (b"\xff\x00\xfe", FailureReason.CANDIDATE_NOT_TEXT),
            (b"x" * (MAX_CANDIDATE_BYTES + 1), FailureReason.CANDIDATE_TOO_LARGE),
        ],
    )
    def test_output_that_is_no_answer(
        self, bench: Bench, scripted: ScriptedDriver, output: bytes, reason: FailureReason
    ) -> None:
        """E01, B20: an agent whose output is empty, not text or too large has failed, even with exit status 0."""
        scripted.program("agent")(lambda context: context.stdout.write(output))
        agent_result = bench.produce()
        assert agent_result.failure is not None
        assert (agent_result.failure.reason, agent_result.failure.phase) == (reason, FailurePhase.SEAL)

    @pytest.mark.parametrize("name", variants(trees.TRAPS, small_trap))
    def test_hostile_workspaces(self, bench: Bench, scripted: ScriptedDriver, host_canary: Path, name: str) -> None:
        """H: each trap in a workspace is sealed as harmless data or is a typed failure; the next agent can run."""
        trap = trees.TRAPS[name]

        @scripted.program("agent")
        def agent(context: ProgramContext) -> None:
            trap.build(context.path())

        agent_result = bench.produce(WORKSPACE_VIEW)
        reasons = {
            trees.SEALED: None,
            trees.UNSAFE: FailureReason.UNSAFE_WORKSPACE,
            trees.TOO_LARGE: FailureReason.CANDIDATE_TOO_LARGE,
        }
        assert (agent_result.failure and agent_result.failure.reason) == reasons[trap.outcome]
        assert (agent_result.candidate is None) is (trap.outcome != trees.SEALED)
        scripted.program("agent")(lambda context: context.stdout.write("x"))
        assert bench.produce().failure is None

    def test_a_replaced_read_only_asset(self, bench: Bench, scripted: ScriptedDriver, tmp_path: Path) -> None:
        """D10: an agent that renames the directory of a read-only asset and puts another file there has tampered."""
        (tmp_path / "pack").mkdir()
        (tmp_path / "pack/a.csv").write_text("1")
        view = with_assets(WORKSPACE_VIEW, tmp_path / "pack", FileReference("a.csv", "data/a.csv"))

        @scripted.program("agent")
        def agent(context: ProgramContext) -> None:
            root = context.path()
            (root / "data").rename(root / "away")
            (root / "data").mkdir()
            (root / "data/a.csv").write_text("2")

        agent_result = bench.produce(view)
        assert agent_result.failure is not None
        assert (agent_result.failure.reason, agent_result.failure.phase) == (FailureReason.TAMPERED, FailurePhase.SEAL)
        assert "data/a.csv" in agent_result.failure.message
        assert agent_result.candidate is not None

    def test_recorded_output_is_bounded(self, bench: Bench, scripted: ScriptedDriver) -> None:
        """I12: a record contains the beginning of the agent's output and the number of bytes that were left out."""
        bench.limits = Limits(output=8 * MIB)
        scripted.program("agent")(lambda context: context.stderr.write(b"\xff" * (2 * MIB)))
        agent_result = bench.produce()
        assert len(agent_result.stderr) < 70_000
        assert agent_result.stderr.endswith(" more bytes]\n")
        assert agent_result.metadata["stderr_truncated"] is True


class TestWhatIsNotTheAgentsFault:
    """Errors of the infrastructure, the configuration or the pack are never failures of the agent."""

    def test_the_engine(self, bench: Bench, scripted: ScriptedDriver) -> None:
        """L08, L15: an error of the engine, before or during the agent's run, is not a failure of the agent."""
        scripted.program("agent")(lambda context: context.stdout.write("x"))
        scripted.fail_next(ImageError("gone"), on="resolve_image")
        with pytest.raises(ImageError):
            bench.produce()
        scripted.fail_next(gone := EngineError("gone"), on="wait")
        agent_result = bench.produce()
        assert (agent_result.fault, agent_result.failure, agent_result.candidate) == (gone, None, None)
        assert not scripted.open_sandboxes

    def test_a_foreign_workspace(self, bench: Bench, scripted: ScriptedDriver, host_canary: Path) -> None:
        """H12: a workspace that was replaced by a symbolic link between two runs is an error; no file is removed."""
        scripted.program("agent")(lambda context: context.stdout.write("x"))
        bench.produce()
        bench.workspace.rename(bench.root / "moved")
        bench.workspace.symlink_to(host_canary.parent)
        with pytest.raises(StorageError) as refused:
            bench.produce()
        assert refused.value.code == "workspace-foreign"
        bench.workspace.unlink()

    def test_a_pack_that_changed(
        self, bench: Bench, scripted: ScriptedDriver, tmp_path: Path, host_canary: Path
    ) -> None:
        """K13: an asset that is a symbolic link is an error of the pack, and the agent does not run."""
        (tmp_path / "pack").mkdir()
        (tmp_path / "pack/a.csv").symlink_to(host_canary)
        with pytest.raises(MaterializationError):
            bench.produce(with_assets(VIEW, tmp_path / "pack", FileReference("a.csv")))
        assert not scripted.commands

    def test_colliding_mounts(self, bench: Bench, scripted: ScriptedDriver, tmp_path: Path) -> None:
        """K14: two assets with colliding paths are refused before the workspace is created."""
        files = (FileReference("a", "x"), FileReference("b", "x/y"))
        with pytest.raises(PathPolicyError):
            bench.produce(with_assets(VIEW, tmp_path, *files))
        assert not bench.workspace.exists()

    def test_the_hosts_disk(self, bench: Bench, scripted: ScriptedDriver, monkeypatch: pytest.MonkeyPatch) -> None:
        """L07: an error of the operating system while a workspace is read is a storage error."""
        scripted.program("agent")(_writes("answer", b"x"))

        def fails(*_: object) -> bytes:
            raise OSError(5, os.strerror(5))

        monkeypatch.setattr("securebench.candidates.extraction.read_file", fails)
        with pytest.raises(StorageError, match="Input/output error"):
            bench.produce(artifact_path="answer")


class TestRepositories:
    """Agents that change a repository: they run as root without capabilities, and can write to the image's files."""

    @pytest.fixture
    def view(self, scripted: ScriptedDriver) -> AgentView:
        """Return a task in the repository of an image."""
        scripted.add_image("repository:1", files={"/repo/README": b"old\n", "/repo/.git/HEAD": b"x\n"})
        return replace(PATCH_VIEW, environment=Environment(image="repository:1", workdir="/repo"))

    def test_where_it_works(self, bench: Bench, scripted: ScriptedDriver, view: AgentView, tmp_path: Path) -> None:
        """The agent starts in the repository, and its changes are sealed; all users can write to its workspace."""
        changed = tmp_path / "changed"
        (changed / ".git").mkdir(parents=True)
        (changed / ".git/HEAD").write_bytes(b"y\n")
        (changed / "README").write_bytes(b"new\n")
        scripted.program("agent")(lambda context: context.leave(CollectedLayer(layer)))
        layer = os.open(changed, os.O_RDONLY)
        agent_result = bench.produce(view)
        os.close(layer)
        spec = _spec(scripted)
        assert (spec.workdir, spec.user, spec.read_only, spec.collect) == ("/repo", (0, 0), False, "/repo")
        assert (spec.cap_drop, spec.cap_add, spec.network) == (("ALL",), (), "none")
        assert spec.mounts == (Mount(bench.workspace, "/workspace", read_only=False),)
        assert spec.environment["SECUREBENCH_TASK_FILE"] == "/workspace/task.json"
        assert stat.S_IMODE(bench.workspace.stat().st_mode) == 0o777
        assert stat.S_IMODE(bench.workspace.parent.stat().st_mode) == 0o700
        assert agent_result.candidate is not None
        assert bench.store.read_patch(agent_result.candidate) == {b"README": FileVersion(b"new\n")}
        assert agent_result.candidate.text is not None
        assert "-old\n+new\n" in agent_result.candidate.text
        assert agent_result.metadata["ignored"] == {".git": 1}

    def test_a_patch_file_needs_no_collecting(self, bench: Bench, scripted: ScriptedDriver, view: AgentView) -> None:
        """With an artifact path the candidate is the patch in that file, and the repository is not collected."""
        patch = b"--- a/README\n+++ b/README\n@@ -1 +1 @@\n-old\n+new\n"
        scripted.program("agent")(_writes("/workspace/fix.patch", patch))
        agent_result = bench.produce(view, artifact_path="fix.patch")
        assert _spec(scripted).collect is None
        assert agent_result.candidate is not None
        assert bench.store.read_patch(agent_result.candidate) == {b"README": FileVersion(b"new\n")}
        assert "ignored" not in agent_result.metadata

    def test_the_images_own_directory(self, bench: Bench, scripted: ScriptedDriver, view: AgentView) -> None:
        """If neither the task nor its image has a working directory, the task is refused before its agent runs."""
        with pytest.raises(MaterializationError) as refused:
            bench.produce(replace(view, environment=Environment(image="repository:1")))
        assert refused.value.code == "image-workdir-missing"
        assert not scripted.commands
