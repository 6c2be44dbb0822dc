"""The pipeline gives an agent its workspace, runs it, and makes a candidate or a typed failure of whatever it does."""

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
    """The agent's side: its files, its environment, its sandbox."""

    def test_its_task_and_nothing_else(self, bench: Bench, scripted: ScriptedDriver) -> None:
        """Contract 6: task.json and the public values are all that lies in a workspace."""
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
        """F11: a workspace begins empty, whatever the last agent left there."""

        @scripted.program("agent")
        def agent(context: ProgramContext) -> None:
            root = context.path()
            context.stdout.write(f"{sorted(p.name for p in root.iterdir())}")
            (root / "notes").write_text("for the next one")

        first, second = bench.produce(), bench.produce()
        assert first.candidate == second.candidate

    def test_a_strict_sandbox(self, bench: Bench, scripted: ScriptedDriver) -> None:
        """The sandbox has the strictest defaults, and only the workspace can be written."""
        scripted.program("agent")(lambda context: context.stdout.write("x"))
        bench.produce()
        spec = _spec(scripted)
        assert (spec.network, spec.cap_drop, spec.cap_add, spec.read_only) == ("none", ("ALL",), (), True)
        assert spec.security_opt == ("no-new-privileges:true",)
        assert spec.mounts == (Mount(bench.workspace, "/workspace", read_only=False),)
        assert (spec.workdir, spec.user, spec.limits) == ("/workspace", workspace_user(), bench.limits)
        assert spec.labels == {"securebench.test": "yes"}

    def test_the_images_environment_and_the_testers(self, bench: Bench, scripted: ScriptedDriver) -> None:
        """An agent runs in the image's environment, with the variables that the tester names; HOME can be written."""
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
        """H06: nobody else on the host reaches a workspace; in it, the sandbox's user may write."""
        scripted.program("agent")(lambda context: context.stdout.write("x"))
        bench.produce()
        assert stat.S_IMODE(bench.workspace.parent.stat().st_mode) == 0o700
        owners = {(p.stat().st_uid, p.stat().st_gid) for p in (bench.workspace, bench.workspace / "task.json")}
        assert owners == {workspace_user()}

    def test_a_run_directory_behind_a_link(self, scripted: ScriptedDriver, tmp_path: Path) -> None:
        """The tester's own link on the way to the run directory is resolved: no mount passes through it."""
        (tmp_path / "real").mkdir()
        (tmp_path / "link").symlink_to("real")
        scripted.program("agent")(lambda context: context.stdout.write("x"))
        assert Bench(scripted, tmp_path / "link").produce().failure is None
        assert _spec(scripted).mounts[0].source == tmp_path / "real/workspaces/task-1"

    def test_a_terminal_task_at_its_workdir(self, bench: Bench, scripted: ScriptedDriver) -> None:
        """Contract 6: the workspace of a terminal task lies at environment.workdir."""
        scripted.program("agent")(lambda context: context.stdout.write(context.environment["SECUREBENCH_TASK_FILE"]))
        agent_result = bench.produce(WORKSPACE_VIEW)
        assert agent_result.stdout == "/app/task.json"
        assert (_spec(scripted).workdir, _spec(scripted).mounts[0].target) == ("/app", "/app")

    def test_a_read_only_asset_behind_a_read_only_mount(
        self, bench: Bench, scripted: ScriptedDriver, tmp_path: Path
    ) -> None:
        """D10: the file alone is mounted again, read-only, over the writable workspace."""
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
        """The shorter of the tester's and the task's time limits holds."""
        scripted.program("agent")(lambda context: context.stdout.write("x"))
        bench.produce(replace(VIEW, environment=Environment(timeout_seconds=task)), timeout_seconds=tester)
        assert scripted.commands[-1][1].timeout_seconds == expected


class TestCandidates:
    """What becomes of an agent that ended well."""

    def test_its_output(self, bench: Bench, scripted: ScriptedDriver) -> None:
        """Without an artifact path the candidate is what it printed, and stderr is not part of it."""

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
        """With an artifact path the candidate is that file, and stdout is only recorded."""

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
        """Events carry whole lines, and the driver's events are left to the run."""

        @scripted.program("agent")
        def agent(context: ProgramContext) -> None:
            for part in ("first ", "line\nsecond", " line\nlast"):
                context.stdout.write(part)

        bench.produce()
        assert "".join(str(text) for _, text in bench.agent_output()) == "first line\nsecond line\nlast"
        assert all(str(text).endswith("\n") for _, text in bench.agent_output()[:-1])
        assert {event.kind for event in bench.events} == {EventKind.AGENT_OUTPUT}


class TestAgentFailures:
    """What becomes of an agent that did not end well: a scored failure, never an exception."""

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
        """L13, L14: a crash, a time-out, a flood and a memory bomb have their reasons; the file they left is sealed."""

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
        """A crash explains a missing file, which is recorded beside it."""
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
        """E01, B20: an agent that ended well and said nothing usable has failed."""
        scripted.program("agent")(lambda context: context.stdout.write(output))
        agent_result = bench.produce()
        assert agent_result.failure is not None
        assert (agent_result.failure.reason, agent_result.failure.phase) == (reason, FailurePhase.SEAL)

    @pytest.mark.parametrize("name", variants(trees.TRAPS, small_trap))
    def test_hostile_workspaces(self, bench: Bench, scripted: ScriptedDriver, host_canary: Path, name: str) -> None:
        """H: each trap in a workspace is sealed as harmless data, or a typed failure; the next run is clean."""
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
        """D10: a directory above a read-only asset can be renamed; what then stands in its place is tampering."""
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
        """I12: a record keeps the beginning of what was printed and says how much more there was."""
        bench.limits = Limits(output=8 * MIB)
        scripted.program("agent")(lambda context: context.stderr.write(b"\xff" * (2 * MIB)))
        agent_result = bench.produce()
        assert len(agent_result.stderr) < 70_000
        assert agent_result.stderr.endswith(" more bytes]\n")
        assert agent_result.metadata["stderr_truncated"] is True


class TestWhatIsNotTheAgentsFault:
    """Infrastructure and configuration are errors of their own, and never a score."""

    def test_the_engine(self, bench: Bench, scripted: ScriptedDriver) -> None:
        """L08, L15: an engine that fails is not a failure of the agent, before it runs or while it does."""
        scripted.program("agent")(lambda context: context.stdout.write("x"))
        scripted.fail_next(ImageError("gone"), on="resolve_image")
        with pytest.raises(ImageError):
            bench.produce()
        scripted.fail_next(gone := EngineError("gone"), on="wait")
        agent_result = bench.produce()
        assert (agent_result.fault, agent_result.failure, agent_result.candidate) == (gone, None, None)
        assert not scripted.open_sandboxes

    def test_a_foreign_workspace(self, bench: Bench, scripted: ScriptedDriver, host_canary: Path) -> None:
        """H12: a workspace that was replaced by a link between two runs stops the task; nothing is removed."""
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
        """K13: an asset that became a link is not the agent's fault, and the agent never runs."""
        (tmp_path / "pack").mkdir()
        (tmp_path / "pack/a.csv").symlink_to(host_canary)
        with pytest.raises(MaterializationError):
            bench.produce(with_assets(VIEW, tmp_path / "pack", FileReference("a.csv")))
        assert not scripted.commands

    def test_colliding_mounts(self, bench: Bench, scripted: ScriptedDriver, tmp_path: Path) -> None:
        """K14: two assets in one place stop the task before its workspace is touched."""
        files = (FileReference("a", "x"), FileReference("b", "x/y"))
        with pytest.raises(PathPolicyError):
            bench.produce(with_assets(VIEW, tmp_path, *files))
        assert not bench.workspace.exists()

    def test_the_hosts_disk(self, bench: Bench, scripted: ScriptedDriver, monkeypatch: pytest.MonkeyPatch) -> None:
        """L07: what the operating system refuses while a workspace is read is a storage error."""
        scripted.program("agent")(_writes("answer", b"x"))

        def fails(*_: object) -> bytes:
            raise OSError(5, os.strerror(5))

        monkeypatch.setattr("securebench.candidates.extraction.read_file", fails)
        with pytest.raises(StorageError, match="Input/output error"):
            bench.produce(artifact_path="answer")


class TestRepositories:
    """An agent in a repository: root without capabilities, where the image may be written."""

    @pytest.fixture
    def view(self, scripted: ScriptedDriver) -> AgentView:
        """Give a task in the repository of an image."""
        scripted.add_image("repository:1", files={"/repo/README": b"old\n", "/repo/.git/HEAD": b"x\n"})
        return replace(PATCH_VIEW, environment=Environment(image="repository:1", workdir="/repo"))

    def test_where_it_works(self, bench: Bench, scripted: ScriptedDriver, view: AgentView, tmp_path: Path) -> None:
        """It starts in the repository, which is collected; its workspace lies beside it, and all may write there."""
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
        """With an artifact path only that file counts, and nothing of the image is kept."""
        patch = b"--- a/README\n+++ b/README\n@@ -1 +1 @@\n-old\n+new\n"
        scripted.program("agent")(_writes("/workspace/fix.patch", patch))
        agent_result = bench.produce(view, artifact_path="fix.patch")
        assert _spec(scripted).collect is None
        assert agent_result.candidate is not None
        assert bench.store.read_patch(agent_result.candidate) == {b"README": FileVersion(b"new\n")}
        assert "ignored" not in agent_result.metadata

    def test_the_images_own_directory(self, bench: Bench, scripted: ScriptedDriver, view: AgentView) -> None:
        """Without environment.workdir and a directory of the image there is no repository: the task is unusable."""
        with pytest.raises(MaterializationError) as refused:
            bench.produce(replace(view, environment=Environment(image="repository:1")))
        assert refused.value.code == "image-workdir-missing"
        assert not scripted.commands
