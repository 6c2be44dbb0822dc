"""Whole runs with a fake agent, verifier and driver."""

from __future__ import annotations

import base64
import errno
import gc
import hashlib
import json
import os
import shutil
import threading
import time
import tracemalloc
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fault_hooks import hooked
from run_fakes import FakeProducer, FakeVerifier, Sink, seal
from securebench.benchmark_pack import load_benchmark_pack
from securebench.candidates.artifact import CandidateArtifact
from securebench.errors import ConfigError, EngineError, ImageError, StorageError
from securebench.execution import retry
from securebench.faults import FaultPoint
from securebench.fs.rmtree import make_fresh_directory, make_private_directory
from securebench.harnesses.base import AgentResult
from securebench.harnesses.pipeline import plan_workspace
from securebench.progress import AgentOutput, EventKind, RunDone, TaskDone
from securebench.resources import Component
from securebench.results.records.commitment import KEY_FILE, Commitment
from securebench.results.run_directory.files import JOURNAL, SUPERSEDED
from securebench.results.run_directory.header import HEADER
from securebench.results.run_directory.lock import RunLock
from securebench.results.summary import RunEnd, RunStatus
from securebench.sandboxes.base import Command, SandboxSpec
from securebench.tasks import DEFAULT_IMAGE, CandidateKind
from securebench.tester_config import CommandConfig, KeepWorkspaces
from securebench.tester_run import agent_copy
from securebench.tester_run.breaker import ERRORS_IN_A_ROW
from securebench.tester_run.planning import directory as places
from securebench.tester_run.planning.plan import affordable_workers
from securebench.testing.scripted_sandbox import ScriptedDriver
from securebench.trials import TrialId
from securebench.workspaces.materialization import VisibilityAwareMaterializer
from synthetic_run import reopen
from tester_run.running import add_row, comparables, make_parts, records, row, run, write_run

if TYPE_CHECKING:
    from collections.abc import Callable

    from securebench.harnesses.base import ProduceContext
    from securebench.images.model import ResolvedImage
    from securebench.progress import Event
    from securebench.sandboxes.base import DriverInfo
    from securebench.tasks import AgentView
    from securebench.tester_config import HarnessConfig
    from securebench.tester_run import RunParts
    from securebench.testing.scripted_sandbox import ProgramContext
    from securebench.verifiers.base import VerifyContext


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "BACK_OFF", (0, 0))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a directory with a pack of six tasks and a tester YAML."""
    write_run(tmp_path)
    return tmp_path


def failing(numbers: set[str], error: Callable[[], Exception]) -> FakeProducer:
    """Return a harness that raises ``error`` for the tasks whose ids end with one of ``numbers``."""

    def hook(_: int, view: AgentView, __: ProduceContext) -> None:
        if view.task_id.rpartition("-")[2] in numbers:
            raise error()

    return FakeProducer(hook=hook)


@pytest.mark.parametrize("workers", [1, 4])
def test_every_task_has_a_record(root: Path, workers: int) -> None:
    """A run writes one record for each task, and the status of its summary is ``complete``."""
    summary = run(root, workers=workers)
    assert (summary.tasks, summary.passed, summary.verification_status) == (6, 6, RunStatus.COMPLETE)
    assert {record["task_id"] for record in records(root)} == {f"pack/task-{n}" for n in range(6)}
    assert [record["sequence"] for record in records(root)] == list(range(6))
    assert summary.ending is RunEnd.FINISHED


def test_the_directory_of_a_run(root: Path) -> None:
    """The directory of a finished run contains exactly the documented files and directories."""
    run(root)
    assert sorted(path.name for path in (root / "results").iterdir()) == [
        "candidates",
        "candidates.jsonl",
        "commitment.key",
        "run.json",
        "source.json",
        "workspaces",
    ]


def test_limit_takes_the_first_rows(root: Path) -> None:
    """``--limit`` runs only the first rows of the pack, in order."""
    summary = run(root, limit=2)
    assert [record["task_id"] for record in records(root)] == ["pack/task-0", "pack/task-1"]
    assert summary.tasks == 2


def test_a_larger_limit_goes_on(root: Path) -> None:
    """A limited run that is resumed without the limit runs only the remaining rows."""
    run(root, limit=2)
    producer = FakeProducer()
    summary = run(root, resume=True, parts=make_parts(producer))
    assert sorted(view.task_id for view in producer.views) == [f"pack/task-{n}" for n in range(2, 6)]
    assert summary.passed == 6


def test_a_resumed_run_may_keep_fewer_workspaces(root: Path) -> None:
    """When a run is resumed with ``keep_workspaces: none``, the workspaces that it already has are removed too."""

    def work(_: int, __: AgentView, context: ProduceContext) -> None:
        context.workspace.mkdir(parents=True)

    run(root, limit=2, parts=make_parts(FakeProducer(hook=work)))
    workspaces = root / "results/workspaces"
    assert len([path for path in workspaces.iterdir() if path.is_dir()]) == 2
    run(root, resume=True, keep_workspaces=KeepWorkspaces.NONE, parts=make_parts(FakeProducer(hook=work)))
    assert [path for path in workspaces.iterdir() if path.is_dir()] == []
    assert json.loads((root / "results/run.json").read_text())["information"]["keep_workspaces"] == "none"


def test_families_without_a_verifier_end_as_pending(tmp_path: Path) -> None:
    """A pack whose family has no verifier is run, and its tasks are pending (N)."""
    write_run(tmp_path, 2, family="tool_call")
    summary = run(tmp_path)
    assert (summary.pending, summary.verification_status, summary.pass_rate) == (2, RunStatus.PENDING, None)


def test_some_verified_is_partial(root: Path) -> None:
    """A run with an error has the status ``partial``, and its pass rate ignores the error (L15)."""
    summary = run(root, parts=make_parts(failing({"1"}, lambda: ImageError("gone"))))
    assert (summary.errors, summary.passed, summary.verification_status) == (1, 5, RunStatus.PARTIAL)
    assert summary.pass_rate == 1.0


def test_an_occupied_directory_is_refused(root: Path) -> None:
    """Without ``--resume`` a directory with a run is refused, and the error names the options that help (K22)."""
    run(root)
    before = (root / "results" / JOURNAL).read_bytes()
    with pytest.raises(ConfigError) as caught:
        run(root)
    assert caught.value.code == "output-dir-in-use"
    assert "--resume" in str(caught.value)
    assert "--output-dir" in str(caught.value)
    assert (root / "results" / JOURNAL).read_bytes() == before


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("name", ["notes.txt", "candidates.jsonl", ".hidden"])
def test_a_directory_of_something_else_is_refused(root: Path, name: str, resume: bool) -> None:
    """A directory with a file that no run wrote is refused and not changed, also with ``--resume`` (K22)."""
    (root / "results").mkdir()
    (root / "results" / name).write_text("mine")
    with pytest.raises(ConfigError, match=name) as caught:
        run(root, resume=resume)
    assert caught.value.code == "output-dir-in-use"
    assert [path.name for path in (root / "results").iterdir()] == [name]


def test_resuming_nothing_begins(root: Path) -> None:
    """``--resume`` without an earlier run starts an ordinary run, without a ``resume`` event."""
    events: list[Event] = []
    assert run(root, resume=True, sinks=[events.append]).passed == 6
    assert EventKind.RUN_START in {event.kind for event in events}
    assert EventKind.RESUME not in {event.kind for event in events}
    run(root, resume=True, sinks=[events.append])
    assert EventKind.RESUME in {event.kind for event in events}


@pytest.mark.parametrize("place", ["pack", "pack/inside", "/"])
def test_unsafe_directories(root: Path, place: str) -> None:
    """``--output-dir`` must not be the pack, inside the pack, or ``/``: the rules of ``run.output_dir`` apply (K22)."""
    with pytest.raises(ConfigError) as caught:
        run(root, output_dir=root / place)
    assert caught.value.code == "output-dir-unsafe"


def test_two_runs_share_no_directory(root: Path) -> None:
    """A run is refused while another one uses its directory, also with ``--resume`` (L11)."""
    run(root, limit=1)
    for resume in (False, True):
        with RunLock(root / "results"), pytest.raises(ConfigError, match="another process is using"):
            run(root, resume=resume)


def test_a_missing_image_is_told_before_any_task(root: Path) -> None:
    """A missing image ends the run before any task, and the output directory stays empty and usable (L08)."""
    producer = FakeProducer()
    with pytest.raises(ImageError, match="is not on this machine"):
        run(root, parts=make_parts(producer, ScriptedDriver(images=())))
    assert not producer.views
    assert not list((root / "results").iterdir())
    assert run(root).passed == 6


def test_all_missing_images_are_told_at_once(tmp_path: Path) -> None:
    """The error names every missing image."""
    write_run(tmp_path)
    rows = [{**row(f"pack/{name}"), "environment": {"image": name}} for name in ("one:1", "two:2")]
    (tmp_path / "pack" / "tasks.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    with pytest.raises(ImageError) as caught:
        run(tmp_path)
    assert "one:1" in str(caught.value)
    assert "two:2" in str(caught.value)


def test_an_image_is_resolved_once(root: Path) -> None:
    """Each image reference is resolved once, and ``run.json`` contains the resulting id."""
    driver = ScriptedDriver()
    calls: list[str] = []
    real = driver.resolve_image

    def resolve(reference: str, on_progress: Any = None) -> Any:
        calls.append(reference)
        return real(reference, on_progress)

    driver.resolve_image = resolve  # type: ignore[method-assign]  # counts calls
    run(root, parts=make_parts(driver=driver))
    assert calls == ["securebench/python:3.11"]
    header = json.loads((root / "results" / HEADER).read_text())
    assert header["images"] == {"securebench/python:3.11": real("securebench/python:3.11").id}


def test_too_little_room(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run on a disk with too little free space ends before its first task (L07)."""
    usage = shutil.disk_usage(root)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=places.MIN_FREE - 1))
    producer = FakeProducer()
    with pytest.raises(StorageError, match="KiB free"):
        run(root, parts=make_parts(producer))
    assert not producer.views


def test_a_disk_that_fills_up(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the journal cannot be written, the run stops, keeps its records, and can be resumed (L07)."""
    run_dir, real = root / "results", os.write

    def full(descriptor: int, data: bytes) -> int:
        if data.startswith(b'{"record_version"') and len(records(root)) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, data)

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        summary = run(root)
    assert (summary.ending, summary.passed, summary.total.not_run) == (RunEnd.STOPPED, 2, 4)
    assert "No space left" in summary.problems[0]
    assert "--resume" in summary.problems[0]
    assert (run_dir / JOURNAL).read_bytes().endswith(b"\n")
    assert run(root, resume=True).passed == 6


def test_a_full_disk_ends_what_is_in_flight(root: Path) -> None:
    """After a storage error in one worker, the sandboxes of the other workers are killed: the run does not wait."""
    released = threading.Event()

    class Driver(ScriptedDriver):
        def kill_all(self) -> None:
            released.set()
            super().kill_all()

    def hook(number: int, *_: object) -> None:
        if number == 1:
            raise StorageError("full")
        assert released.wait(20)

    start = time.monotonic()
    summary = run(root, workers=2, parts=make_parts(FakeProducer(hook=hook), Driver()))
    assert summary.ending is RunEnd.STOPPED
    assert time.monotonic() - start < 18
    assert summary.passed == 0


def test_a_candidate_that_cannot_be_read_is_judged_later(root: Path) -> None:
    """If a candidate cannot be read, the run stops, and ``--resume`` judges it without its agent (L07)."""
    reads = []

    def fail_once(point: FaultPoint, _subject: str) -> None:
        if point is FaultPoint.CANDIDATE_READ:
            reads.append(point)
            if len(reads) == 2:
                raise OSError(errno.EIO, os.strerror(errno.EIO))

    with hooked(fail_once):
        summary = run(root)
    assert (summary.ending, summary.passed, summary.total.errors, summary.total.not_run) == (RunEnd.STOPPED, 1, 1, 4)
    assert "Input/output error" in summary.problems[0]
    producer = FakeProducer()
    assert run(root, resume=True, parts=make_parts(producer)).passed == 6
    assert len(producer.views) == 4


def test_errors_are_redone_and_counted(root: Path) -> None:
    """Resuming reruns only errors, moves their old records to another file, and counts the attempts (L06)."""
    run(root, parts=make_parts(failing({"1", "3"}, lambda: ImageError("gone"))))
    kept = {record["task_id"]: record for record in records(root) if record["verification_status"] == "passed"}
    producer, sink = FakeProducer(), Sink()
    summary = run(root, resume=True, parts=make_parts(producer), sinks=[sink])
    assert summary.passed == 6
    assert sorted(view.task_id for view in producer.views) == ["pack/task-1", "pack/task-3"]
    now = {record["task_id"]: record for record in records(root)}
    assert {name: now[name] for name in kept} == kept
    assert [now[f"pack/task-{n}"]["provenance"]["attempt"] for n in range(4)] == [1, 2, 1, 2]
    assert len((root / "results" / SUPERSEDED).read_bytes().splitlines()) == 2
    resume = next(event for event in sink.events if event.kind == "resume")
    assert resume.data == {"kept": 4, "redone": 2, "planned": 6}


@pytest.mark.parametrize("answer", ["right", "wrong"])
def test_verdicts_are_not_fished_for(root: Path, answer: str) -> None:
    """A pass and a failure are both final: resuming does not run them again (L06, M04)."""
    run(root, parts=make_parts(FakeProducer(answer)))
    producer = FakeProducer()
    run(root, resume=True, parts=make_parts(producer))
    assert not producer.views


def _touch(path: str, text: str) -> Callable[[Path], object]:
    return lambda root: (root / path).write_text(text)


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a row": (add_row, "the pack is not the same"),
    "manifest": (_touch("pack/manifest.yaml", "id: pack\nversion: 2\n"), "benchmark.version"),
    "agent": (_touch("agent/agent.py", "print('other')\n"), "harness.config.agent_dir is not the same"),
    "a file of the agent": (_touch("agent/more.py", ""), "harness.config.agent_dir is not the same"),
}


def test_changed_settings_are_refused_by_name(root: Path) -> None:
    """The error names each changed setting, with both values of a number; texts may be secret and are not shown."""
    path, begun = root / "tester.yaml", "command: [agent]\n    artifact_path: a-secret"
    path.write_text(path.read_text().replace("command: [agent]", begun))
    run(root, limit=1)
    path.write_text(path.read_text().replace(begun, f"{begun}-2\n    timeout_seconds: 77"))
    with pytest.raises(ConfigError) as caught:
        run(root, resume=True)
    artifact, timeout = sorted(problem.message for problem in caught.value.problems)
    assert artifact == "cannot continue the run: harness.config.artifact_path is not the same as when the run began"
    assert timeout.startswith("cannot continue the run: harness.config.timeout_seconds was ")
    assert timeout.endswith(" when the run began, and is 77.0 now")
    assert "a-secret" not in (root / "results" / "run.json").read_text()


@pytest.mark.parametrize(("change", "named"), CHANGES.values(), ids=CHANGES)
def test_what_changed_is_refused_by_name(root: Path, change: Callable[[Path], object], named: str) -> None:
    """A run whose pack or agent changed is not resumed, and the error names what changed (L05)."""
    run(root, limit=3)
    change(root)
    with pytest.raises(ConfigError) as caught:
        run(root, resume=True)
    assert caught.value.code == "resume-mismatch"
    assert named in str(caught.value)
    assert len(records(root)) == 3


def test_no_published_digest_tests_a_guess(root: Path) -> None:
    """M12: published files contain no digest that a reader could compute from a guess of the hidden content."""
    (root / "pack/tasks.jsonl").write_text(
        '{"id": "one", "family": "short_answer", "input": {"question": "Q"}, "eval": {"accepted_answers": ["right"]}}\n'
    )
    run(root)
    results = root / "results"
    published = [results / HEADER, results / JOURNAL, *(results / "candidates").iterdir()]
    texts = [path.read_text() for path in published]
    pack = load_benchmark_pack(root / "pack/manifest.yaml", root / "pack/tasks.jsonl")
    guesses = [pack.rows[0].digest, pack.digest, *pack.fingerprint.values(), (results / KEY_FILE).read_text().strip()]
    assert not [guess for guess in guesses for text in texts if guess in text]
    key = Commitment.read(results)
    record = json.loads((results / JOURNAL).read_text())
    assert record["provenance"]["row"]["commitment"] == key.to(pack.rows[0].digest)
    assert record["provenance"]["pack"] == {"commitment": key.to(pack.digest), "public_digest": pack.public_digest}


def test_a_run_is_not_resumed_without_its_key(root: Path) -> None:
    """A run without its commitment key is not resumed, because its pack could not be compared."""
    run(root, limit=3)
    (root / "results" / KEY_FILE).unlink()
    with pytest.raises(ConfigError) as caught:
        run(root, resume=True)
    assert caught.value.code == "commitment-key"


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("id: run", "id: other", "run_id"),
        ("command: [agent]", "command: [other]", "harness.config.command is not the same"),
        ("harness:", "sandbox: {limits: {pids: 99}}\nharness:", "limits.pids"),
        ("harness:", "verification: {disallow_dangerous_commands: false}\nharness:", "verification"),
    ],
)
def test_what_changed_in_the_tester_yaml_is_refused_by_name(root: Path, old: str, new: str, named: str) -> None:
    """A run is not resumed after a change of its id or of a setting that could change a verdict (L05)."""
    run(root, limit=3)
    path = root / "tester.yaml"
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(ConfigError, match=named):
        run(root, resume=True)


def test_a_moved_image_is_refused(root: Path) -> None:
    """A run is not resumed if the tag of an image now refers to a different image (L05)."""
    run(root, limit=3)
    driver = ScriptedDriver()
    image = driver.add_image("securebench/python:3.11")
    object.__setattr__(image, "id", "sha256:other")
    with pytest.raises(ConfigError, match="images"):
        run(root, resume=True, parts=make_parts(driver=driver))


def test_workers_and_comments_are_no_change(root: Path) -> None:
    """A run can be resumed after a change that cannot affect a verdict: a comment or the number of workers."""
    run(root, limit=3)
    path = root / "tester.yaml"
    path.write_text("# a comment\n" + path.read_text().replace("id: run", "id: run\n  max_workers: 3"))
    assert run(root, resume=True).passed == 6


def test_a_dropped_record_is_noticed(root: Path) -> None:
    """A closed run that lost its last record is not resumed. Without the closing, only that task runs again (M03)."""
    run(root)
    journal = root / "results" / JOURNAL
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:-1]))
    with pytest.raises(ConfigError, match="records: 5, but the run was closed with 6"):
        run(root, resume=True)
    reopen(root / "results")  # as if the run had been killed before its last record
    header = json.loads((root / "results" / HEADER).read_text())
    assert (header["decisive"]["pack"]["tasks"], header["information"]["planned"]) == (6, 6)
    producer = FakeProducer()
    assert run(root, resume=True, parts=make_parts(producer)).passed == 6
    assert [view.task_id for view in producer.views] == ["pack/task-5"]


def test_a_pack_that_changes_under_the_run(root: Path) -> None:
    """The pack is compared again at the end of the run, and a change is reported as a problem of the run (K13)."""

    def hook(number: int, *_: object) -> None:
        if number == 3:
            add_row(root)

    summary = run(root, parts=make_parts(FakeProducer(hook=hook)))
    assert summary.passed == 6
    assert "pack-changed" in summary.problems[0]


def test_a_change_of_the_pack_is_not_forgotten(root: Path) -> None:
    """A change of the pack is recorded in ``run.json``. If it is undone, the resumed run still reports it."""
    before = (root / "pack" / "tasks.jsonl").read_text()
    run(root, parts=make_parts(FakeProducer(hook=lambda number, *_: add_row(root) if number == 3 else None)))
    (root / "pack" / "tasks.jsonl").write_text(before)
    summary = run(root, resume=True)
    assert (summary.passed, len(summary.problems)) == (6, 1)
    assert "pack-changed" in summary.problems[0]
    assert json.loads((root / "results" / HEADER).read_text())["problems"] == list(summary.problems)


def asset_run(root: Path) -> Path:
    """Write a run whose tasks all have the same asset, and return the path of the asset."""
    write_run(root)
    asset = root / "pack" / "assets" / "data" / "numbers.txt"
    asset.parent.mkdir(parents=True)
    asset.write_text("1 2 3")
    rows = [{**row(f"pack/task-{number}"), "assets": [{"path": "data"}]} for number in range(6)]
    (root / "pack" / "tasks.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    return asset


def test_a_changed_asset_is_used_by_nobody(tmp_path: Path) -> None:
    """While an asset is changed, tasks end in an error, and the run still reports the change after it is resumed."""
    asset, seen = asset_run(tmp_path), list[str]()

    @dataclass
    class Reading(FakeProducer):
        def produce(self, view: AgentView, context: ProduceContext) -> AgentResult:
            number = int(view.task_id[-1])
            asset.write_text("1 2 3" if number not in {2, 3} else "1 2 99")
            plan = plan_workspace(view)
            make_private_directory(context.workspace.parent)
            make_fresh_directory(context.workspace)
            VisibilityAwareMaterializer(Component.AGENT).materialize(plan, context.workspace)
            seen.append((context.workspace / "data" / "numbers.txt").read_text())
            return super().produce(view, context)

    summary = run(tmp_path, parts=make_parts(Reading()))
    assert (summary.passed, summary.errors, set(seen)) == (4, 2, {"1 2 3"})
    assert {one.reason for one in summary.failures} == {"task_unusable"}
    assert "file 'data' has changed" in summary.problems[0]
    again = run(tmp_path, resume=True)
    assert (again.passed, again.errors) == (6, 0)
    assert again.problems == summary.problems


_HIDDEN_FILES: dict[str, dict[str, Any]] = {
    "a file of the checker": {"test_files": [{"path": "state.json"}], "expected_state": [1, 2]},
    "the expected state": {"expected_state": {"path": "state.json", "mount": "securebench/evaluator/state.json"}},
}


@pytest.mark.parametrize("evals", _HIDDEN_FILES.values(), ids=_HIDDEN_FILES.keys())
def test_a_changed_hidden_file_is_used_by_nobody(tmp_path: Path, evals: dict[str, Any]) -> None:
    """While a hidden file is changed, tasks end in an error; once it is restored, ``--resume`` runs them."""
    write_run(tmp_path)
    hidden, read = tmp_path / "pack" / "hidden" / "state.json", list[str]()
    hidden.parent.mkdir()
    hidden.write_text("[1, 2]")
    task = {"family": "terminal_task", "input": {"instructions": "?"}, "eval": {"checker": {"command": ":;"}, **evals}}
    rows = [{"id": f"pack/task-{number}", **task} for number in range(6)]
    (tmp_path / "pack" / "tasks.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    driver = ScriptedDriver()

    @driver.program("sh")
    def check(context: ProgramContext) -> None:
        files = (context.path(f"securebench/{lane}/state.json") for lane in ("evaluation_inputs", "evaluator"))
        read.extend(file.read_text() for file in files if file.exists())
        context.stdout.write("[1, 2]")

    def leave(_: int, view: AgentView, context: ProduceContext) -> AgentResult:
        if view.task_id.endswith("-4"):
            hidden.write_text("[1, 99]")
        make_private_directory(context.workspace.parent)
        make_fresh_directory(context.workspace)
        candidate = context.store.seal_tree(CandidateKind.WORKSPACE, context.workspace)
        assert isinstance(candidate, CandidateArtifact)
        return AgentResult(candidate=candidate)

    summary = run(tmp_path, parts=make_parts(FakeProducer(hook=leave), driver))
    assert (summary.passed, summary.failed, summary.errors) == (4, 0, 2)
    assert {one.reason for one in summary.failures} == {"task_unusable"}
    assert "the pack's file 'state.json' has changed" in summary.problems[0]
    hidden.write_text("[1, 2]")
    again = run(tmp_path, parts=make_parts(FakeProducer(hook=leave), driver), resume=True)
    assert (again.passed, again.errors, again.problems) == (6, 0, summary.problems)
    assert read == (["[1, 2]"] * 6 if "test_files" in evals else [])  # the checker never sees the expected state


def test_a_rubric_in_prose_costs_no_agent(tmp_path: Path) -> None:
    """D97: a task with a rubric in prose is an error before its agent runs; the other task has a verdict."""
    write_run(tmp_path, 1)
    prose = {"id": "pack/prose", "family": "free_response", "input": {"prompt": "?"}, "eval": {"rubric": "Be kind."}}
    with (tmp_path / "pack" / "tasks.jsonl").open("a") as rows:
        rows.write(json.dumps(prose) + "\n")
    producer = FakeProducer()
    summary = run(tmp_path, parts=make_parts(producer))
    assert (summary.passed, summary.errors) == (1, 1)
    assert [view.task_id for view in producer.views] == ["pack/task-0"]
    (record,) = [record for record in records(tmp_path) if record["task_id"] == "pack/prose"]
    assert (record["failure_reason"], record["failure_phase"]) == ("task_unusable", "preflight")
    assert "unsupported rubric" in record["failure_message"]


@pytest.mark.parametrize("and_back", [False, True])
def test_an_agent_that_changes_under_the_run(root: Path, and_back: bool) -> None:
    """All tasks use a copy of the agent from the start of the run. The copy is removed at the end (K13)."""
    program, shown = root / "agent" / "agent.py", list[str]()
    program.chmod(0o755)
    (root / "agent" / "link").symlink_to("agent.py")

    def make_producer(config: HarnessConfig) -> FakeProducer:
        assert isinstance(config.config, CommandConfig)
        directory = config.config.agent_dir
        assert directory is not None

        def hook(number: int, *_: object) -> None:
            program.write_text("raise SystemExit(3)\n" if number in {2, 3} or not and_back else "print('right')\n")
            assert (directory / "link").readlink() == Path("agent.py")
            assert (directory / "agent.py").stat().st_mode & 0o777 == 0o755
            shown.append((directory / "link").read_text())

        return FakeProducer(hook=hook)

    summary = run(root, parts=make_parts(make_producer=make_producer))
    assert (summary.passed, set(shown)) == (6, {"print('right')\n"})
    assert not (root / "results" / "agent").exists()
    if not and_back:
        with pytest.raises(ConfigError, match="harness"):
            run(root, resume=True)


def test_an_agent_that_changes_while_it_is_copied(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of the agent that does not match the digest in the plan is refused and removed."""
    monkeypatch.setattr(agent_copy, "_copy", lambda _, target: target.mkdir())
    with pytest.raises(ConfigError) as raised:
        run(root)
    assert raised.value.code == "agent-dir-changed"
    assert not list((root / "results").iterdir())


@pytest.mark.skipif(os.getuid() != 0, reason="only root may change owners")
def test_the_copy_of_an_agent_has_the_same_owners(root: Path) -> None:
    """Each file, directory and link of the copy has the owner of the original, and so has the directory itself."""
    (root / "agent" / "inside").mkdir()
    (root / "agent" / "link").symlink_to("inside")
    copied = (".", "agent.py", "inside", "link")
    for number, name in enumerate(copied):
        os.chown(root / "agent" / name, 1000 + number, 2000, follow_symlinks=False)
    agent_copy._copy(root / "agent", root / "copy")
    owners = [(root / "copy" / name).lstat().st_uid for name in copied]
    assert owners == [1000, 1001, 1002, 1003]


def test_a_copy_that_a_killed_run_left_is_replaced(root: Path) -> None:
    """An agent copy from a run that was killed before it had a header does not block the directory."""
    (root / "results").mkdir()
    make_private_directory(root / "results" / "agent")
    (root / "results" / "agent" / "files").mkdir()
    (root / "results" / "agent" / "files" / "old.py").touch()
    assert run(root).passed == 6
    assert not (root / "results" / "agent").exists()


def test_values_of_harness_env_are_compared(tmp_path: Path) -> None:
    """A run is not resumed with a changed variable, and published files contain no plain digest of a value."""
    write_run(tmp_path, env=["MODE", "OTHER"])
    variables = {"MODE": "one", "OTHER": "x"}
    run(tmp_path, variables=variables, limit=2)
    with pytest.raises(ConfigError, match=r"harness\.env\.MODE") as raised:
        run(tmp_path, variables={**variables, "MODE": "two"}, resume=True)
    assert raised.value.code == "resume-mismatch"
    assert "harness.env.OTHER" not in str(raised.value)
    assert run(tmp_path, variables=variables, resume=True).passed == 6
    published = b"".join(
        path.read_bytes() for path in (tmp_path / "results").iterdir() if path.is_file() and path.name != KEY_FILE
    )
    for guess in ("one", "x"):
        assert hashlib.sha256(guess.encode()).hexdigest().encode() not in published


@pytest.mark.parametrize("how", ["altered", "gone"])
def test_a_sealed_candidate_that_was_touched_is_noticed(root: Path, how: str) -> None:
    """A run with a missing or altered sealed candidate is not resumed until the candidate is restored (M02)."""
    run(root, limit=3)
    (sealed,) = (root / "results" / "candidates").iterdir()
    content = sealed.read_bytes()
    sealed.unlink()
    if how == "altered":
        sealed.write_bytes(b"something else")
    with pytest.raises(ConfigError) as raised:
        run(root, resume=True)
    assert raised.value.code == {"altered": "candidate-altered", "gone": "candidate-not-stored"}[how]
    sealed.unlink(missing_ok=True)
    sealed.write_bytes(content)
    assert run(root, resume=True).passed == 6


def test_records_of_another_run_are_not_counted(root: Path) -> None:
    """A record of another run of the same pack is refused, and the error names its line in the journal."""
    other = root / "other"
    other.mkdir()
    write_run(other)
    run(root, limit=2)
    run(other)
    lines = (other / "results" / JOURNAL).read_bytes().splitlines(keepends=True)
    with (root / "results" / JOURNAL).open("ab") as journal:
        journal.write(lines[2])
    with pytest.raises(
        ConfigError,
        match=r"candidates.jsonl:3: the record belongs to another run: its 'provenance.run'",
    ):
        run(root, resume=True)


class GoneDriver(ScriptedDriver):
    """A driver whose engine stops answering once ``gone`` is set."""

    gone = False

    def info(self) -> DriverInfo:
        """Return the information of the fake driver. Raises :class:`EngineError` if the engine is gone."""
        if self.gone:
            raise EngineError("the engine does not answer", hint="start it")
        return super().info()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_gone_engine_stops_the_run(root: Path, workers: int) -> None:
    """If the engine stops, the run stops, no task fails because of that, and ``--resume`` runs the rest (L08)."""
    driver = GoneDriver()

    def hook(number: int, *_: object) -> None:
        if number >= 3:
            driver.gone = True
            raise EngineError("gone")

    summary = run(root, workers=workers, parts=make_parts(FakeProducer(hook=hook), driver))
    assert summary.ending is RunEnd.STOPPED
    assert "the sandbox engine stopped" in summary.problems[0]
    assert summary.passed == 2
    assert summary.failed == 0
    assert 1 <= summary.errors <= workers
    assert summary.total.not_run >= 1
    assert run(root, resume=True).passed == 6


def test_an_engine_that_came_back_does_not(root: Path) -> None:
    """An engine error of one task does not stop the run if the engine still answers."""
    summary = run(root, parts=make_parts(failing({"2"}, lambda: EngineError("hiccup"))))
    assert (summary.errors, summary.passed, summary.ending) == (1, 5, RunEnd.FINISHED)


def test_errors_in_a_row_stop_the_run(tmp_path: Path) -> None:
    """A run stops after a fixed number of infrastructure errors in a row (L08)."""
    write_run(tmp_path, 20)
    summary = run(tmp_path, parts=make_parts(FakeProducer(hook=_raise_image_error)))
    assert (summary.errors, summary.ending) == (ERRORS_IN_A_ROW, RunEnd.STOPPED)
    assert summary.total.not_run == 20 - ERRORS_IN_A_ROW
    assert "in a row" in summary.problems[0]


def test_unusable_tasks_do_not_stop_the_run(root: Path) -> None:
    """Six tasks in a row that cannot be judged do not stop the run, because they are not infrastructure errors."""
    verifier = FakeVerifier(check=ConfigError("its rubric is prose"))
    summary = run(root, parts=make_parts(verifier_for=lambda *_: verifier))
    assert (summary.errors, summary.total.not_run, summary.ending) == (6, 0, RunEnd.FINISHED)


def _raise_image_error(*_: object) -> None:
    raise ImageError("gone")


def test_variables_are_looked_up_and_redacted(tmp_path: Path) -> None:
    """Variables in ``harness.env`` reach the harness, and their values are in no file of the run directory."""
    write_run(tmp_path, 1, env=["MY_KEY"])
    seen: list[dict[str, str]] = []

    def hook(_: int, __: object, lent: ProduceContext) -> AgentResult:
        seen.append(dict(lent.environment))
        return AgentResult(candidate=seal(lent.store, "right"), stdout="my key is k3y-secret")

    run(tmp_path, variables={"MY_KEY": "k3y-secret", "OTHER": "x"}, parts=make_parts(FakeProducer(hook=hook)))
    assert seen == [{"MY_KEY": "k3y-secret"}]
    for path in (tmp_path / "results").rglob("*"):
        assert not path.is_file() or b"k3y-secret" not in path.read_bytes()


def test_a_missing_variable_is_named(tmp_path: Path) -> None:
    """A variable that is not set is an error before anything runs."""
    write_run(tmp_path, 1, env=["MY_KEY", "PATH"])
    with pytest.raises(ConfigError, match="MY_KEY") as caught:
        run(tmp_path, variables={"PATH": ""})
    assert caught.value.code == "env-missing"
    assert not (tmp_path / "results").exists()


def test_all_missing_variables_are_named(tmp_path: Path) -> None:
    """All missing variables are reported together, in the order of the tester YAML, with a hint."""
    write_run(tmp_path, 1, env=["MY_KEY", "PATH", "ANOTHER"])
    with pytest.raises(ConfigError) as caught:
        run(tmp_path, variables={"PATH": ""})
    assert caught.value.message == "harness.env names variables that are not set: MY_KEY, ANOTHER"
    assert "--env-file" in str(caught.value.hint)


def test_events_of_a_run(root: Path) -> None:
    """The first event is ``run_start``, the last ``run_done``, and each task has one start and end (contract 9)."""
    sink = Sink()
    summary = run(root, sinks=[sink], workers=2)
    kinds = sink.kinds()
    assert (kinds[0], kinds[-1]) == ("run_start", "run_done")
    assert (sink.counts()["task_start"], sink.counts()["task_done"]) == (6, 6)
    reasons = {event.task_id: event.reason for event in sink.events if isinstance(event, TaskDone)}
    assert reasons == {record["task_id"]: record.get("failure_reason") for record in records(root)}
    assert None in reasons.values()
    ended = sink.events[-1]
    assert isinstance(ended, RunDone)
    assert ended.summary == summary.to_json()
    assert [event.time for event in sink.events] == sorted(event.time for event in sink.events)


def test_a_task_is_told_done_when_it_is_on_disk(root: Path) -> None:
    """The record of a task is in the journal before ``task_done`` is sent."""

    def sink(event: Any) -> None:
        if event.kind == "task_done":
            assert event.task_id in {record["task_id"] for record in records(root)}
            seen.append(event.task_id)

    seen: list[str] = []
    run(root, sinks=[sink])
    assert len(seen) == 6


@pytest.mark.parametrize("kind", ["run_start", "task_start", "task_done", "run_done"])
def test_a_sink_that_raises_stops_nothing(root: Path, kind: str) -> None:
    """An exception in an event sink changes no verdict and does not stop the run (L19)."""

    def sink(event: Any) -> None:
        if event.kind == kind:
            raise RuntimeError("boom")

    assert run(root, sinks=[sink]).passed == 6


@pytest.mark.parametrize("show", [True, False])
def test_agent_trace(root: Path, show: bool) -> None:
    """Only if ``show_agent_output`` is set, agent output is written to ``agent-trace.log`` and sent as events."""

    def hook(_: int, __: object, lent: ProduceContext) -> None:
        lent.report.emit(AgentOutput(stream="stdout", text="I think\n"))

    sink = Sink()
    run(root, sinks=[sink], show_agent_output=show, parts=make_parts(FakeProducer(hook=hook)))
    trace = root / "results" / "agent-trace.log"
    assert trace.exists() is show
    assert sink.counts()["agent_output"] == (6 if show else 0)
    if show:
        assert min(trace.read_text().splitlines()) == "[pack/task-0] I think"


def _talkative_parts() -> RunParts:
    """Return parts of a run whose verifier runs a command that prints."""
    driver = ScriptedDriver()

    @driver.program("checker")
    def check(context: ProgramContext) -> int:
        context.stderr.write("line 3 failed\n")
        return 4

    def verify(_: int, __: object, context: VerifyContext) -> None:
        with context.driver.create(SandboxSpec(image=context.driver.resolve_image(DEFAULT_IMAGE))) as sandbox:
            sandbox.run(Command(argv=("checker",), timeout_seconds=5))

    verifier = FakeVerifier(hook=verify)
    return make_parts(driver=driver, verifier_for=lambda *_: verifier)


@pytest.mark.parametrize("keep", [True, False])
def test_verifier_output_is_kept(root: Path, keep: bool) -> None:
    """D170: ``--keep-verifier-output``, and only that, writes a file for each task in the run directory."""
    summary = run(root, keep_verifier_output=keep, parts=_talkative_parts())
    kept = sorted((root / "results" / places.VERIFIER_OUTPUT).glob("*"))
    assert summary.passed == 6
    assert [path.read_text() for path in kept] == ["$ checker (exit 4)\n[stderr]\nline 3 failed\n"] * (6 if keep else 0)
    assert (root / "results" / places.VERIFIER_OUTPUT).exists() is keep


def test_verifier_output_is_shown(root: Path) -> None:
    """D174: ``--show-verifier-output`` passes on the output of each task and writes no file."""
    shown: dict[TrialId, str] = {}
    run(root, show_verifier_output=shown.__setitem__, parts=_talkative_parts())
    assert sorted(shown) == [TrialId(f"pack/task-{number}") for number in range(6)]
    assert set(shown.values()) == {"$ checker (exit 4)\n[stderr]\nline 3 failed\n"}
    assert not (root / "results" / places.VERIFIER_OUTPUT).exists()


def test_hidden_values_are_nowhere_in_the_directory(tmp_path: Path) -> None:
    """No file of a run has hidden values as text, hexadecimal or base64, even if the agent prints them (F13)."""
    write_run(tmp_path, 1)
    answer, phrase = b"CANARY-5d1f7c9be23", b"CANARY-80a4e6d3f19"
    rubric = {"type": "contains_any", "accepted_answers": [phrase.decode(), "right"]}
    rows = [
        row("pack/answer") | {"eval": {"accepted_answers": [answer.decode(), "right"]}},
        row("pack/phrase", "free_response") | {"input": {"prompt": "?"}, "eval": {"rubric": rubric}},
    ]
    (tmp_path / "pack/tasks.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))

    def leak(_: int, view: AgentView, context: ProduceContext) -> AgentResult:
        hidden = answer if view.task_id == "pack/answer" else phrase
        text = f"It is {hidden.decode()} or {hidden.hex()} or {base64.b64encode(hidden).decode()}.\n"
        return AgentResult(candidate=seal(context.store, "right"), stdout=text, stderr=text, trajectory=text)

    assert run(tmp_path, parts=make_parts(FakeProducer(hook=leak))).passed == 2
    kept = b"".join(path.read_bytes() for path in (tmp_path / "results").rglob("*") if path.is_file())
    assert kept.count(b"It is ") == 6
    for hidden in (answer, phrase):
        shifted = [base64.b64encode(b" " * shift + hidden)[4:24] for shift in range(3)]
        assert not [form for form in (hidden, hidden.hex().encode(), *shifted) if form in kept]


def test_metadata_is_not_copied_into_records(tmp_path: Path) -> None:
    """The metadata of a row is not copied into its record (K24, F03)."""
    write_run(tmp_path, 1)
    (tmp_path / "pack/tasks.jsonl").write_text(
        json.dumps(row("pack/one") | {"metadata": {"note": "n0te" * 100}}) + "\n"
    )
    run(tmp_path)
    assert b"n0te" not in (tmp_path / "results" / JOURNAL).read_bytes()


def test_a_workspace_directory_a_task(root: Path) -> None:
    """Each task has a separate workspace directory in ``workspaces/``."""
    places_seen: set[Path] = set()
    run(root, parts=make_parts(FakeProducer(hook=lambda _, __, lent: places_seen.add(lent.workspace))))
    assert len(places_seen) == 6
    assert {path.parent for path in places_seen} == {root / "results" / "workspaces"}


def test_a_leftover_of_a_killed_verifier_goes(root: Path) -> None:
    """Evaluation inputs that a killed run left in ``scratch/`` are removed when the run is resumed."""
    run(root, limit=1)
    (root / "results" / "scratch" / "task").mkdir(parents=True)
    (root / "results" / "scratch" / ".securebench").write_text("")
    (root / "results" / "scratch" / "task" / "tests.py").write_text("assert 1")
    run(root, resume=True)
    assert not (root / "results" / "scratch").exists()


@pytest.mark.parametrize(
    ("requested", "memory", "got"), [(1, 1, 1), (4, 1, 4), (10**9, 2**30, None), (4, 2**60, 1)], ids=str
)
def test_workers_fit_into_memory(requested: int, memory: int, got: int | None) -> None:
    """There are at most as many workers as sandboxes that fit into this machine's memory, but at least one (I24)."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    workers = affordable_workers(requested, memory)
    assert workers == got if got else 1 <= workers <= total // memory


def test_equal_runs_have_equal_records(tmp_path: Path) -> None:
    """Two runs of the same pack have equal comparable records, also with different numbers of workers."""
    for name, workers in (("one", 1), ("two", 4)):
        (tmp_path / name).mkdir()
        write_run(tmp_path / name)
        run(tmp_path / name, workers=workers)
    assert comparables(tmp_path / "one") == comparables(tmp_path / "two")


@pytest.mark.slow
def test_memory_stays_flat(tmp_path: Path) -> None:
    """A run does not keep the long outputs of finished tasks in memory (L17)."""
    early, late, length = 50, 250, 200_000
    held: dict[int, int] = {}

    def hook(number: int, _: AgentView, lent: ProduceContext) -> AgentResult:
        if number in {early, late}:
            gc.collect()
            held[number] = tracemalloc.get_traced_memory()[0]
        return AgentResult(candidate=seal(lent.store, "right"), stdout="x" * length)

    write_run(tmp_path, late)
    tracemalloc.start()
    try:
        run(tmp_path, workers=4, parts=make_parts(FakeProducer(hook=hook)))
    finally:
        tracemalloc.stop()
    # All tasks use 0.4 MB, and those that run use 1 to 10 MB. The limit, half of the outputs, is 20 MB.
    assert held[late] - held[early] < (late - early) * length / 2


def test_a_weak_engine_runs_nothing(root: Path) -> None:
    """If the self-test of the driver fails, the run ends before any task with the driver's error (I03)."""
    driver = ScriptedDriver()

    def refuse(image: ResolvedImage, *, forwarded_ports: bool = False) -> None:
        raise EngineError(f"{image.reference} sees a network", code="sandbox-not-isolated")

    driver.self_test = refuse  # type: ignore[method-assign]  # fails
    producer = FakeProducer()
    with pytest.raises(EngineError, match="sees a network"):
        run(root, parts=make_parts(driver=driver, producer=producer))
    assert not producer.views
    assert not (root / "results" / HEADER).exists()
