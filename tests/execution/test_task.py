"""One task, from workspace to record."""

from __future__ import annotations

import base64
import errno
import json
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from run_fakes import (
    FAKE,
    HIDDEN,
    TESTS,
    FakeProducer,
    FakeVerifier,
    Sink,
    agent_failure,
    make_context,
    make_task,
    seal,
)
from securebench.errors import (
    CandidateError,
    ConfigError,
    DiskFullError,
    EngineError,
    FailurePhase,
    FailureReason,
    ImageError,
    InfrastructureError,
    MaterializationError,
    ProviderError,
    StorageError,
)
from securebench.execution import History, RunStoppedError, TaskContext, execute_task, retry
from securebench.execution.removal import Removals
from securebench.fs.rmtree import MARKER, make_private_directory, remove_private_directory
from securebench.harnesses.base import AgentResult, Spent
from securebench.progress import AgentOutput
from securebench.results.records.commitment import Commitment
from securebench.results.records.record import VerificationStatus, comparable
from securebench.results.records.strict_record import read_entry
from securebench.results.records.usage import Usage
from securebench.sandboxes.base import Command, SandboxSpec
from securebench.tester_config import KeepWorkspaces
from securebench.testing.scripted_sandbox import ScriptedDriver
from securebench.verifiers.base import VerificationResult, VerifyContext

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from securebench.harnesses.base import ProduceContext

STATUS = VerificationStatus


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "BACK_OFF", (0, 0))


def run(context: TaskContext, **changes: Any) -> dict[str, Any]:
    """Execute one task, and return its record as JSON."""
    record: dict[str, Any] = json.loads(execute_task(make_task(**changes), context).line(0))
    return record


def raising(error: BaseException, times: int = 1000) -> Callable[..., None]:
    """Return a hook that raises ``error`` the first ``times`` times."""

    def hook(number: int, *_: object) -> None:
        if number <= times:
            raise error

    return hook


@pytest.mark.parametrize(("answer", "status", "score"), [("right", "passed", 1.0), ("wrong", "failed", 0.0)])
def test_verdict(tmp_path: Path, answer: str, status: str, score: float) -> None:
    """The verifier's result for the sealed candidate is the verdict."""
    record = run(make_context(tmp_path, producer=FakeProducer(answer)))
    assert (record["verification_status"], record["score"]) == (status, score)
    assert record["candidate_text"] == answer
    assert record["verifier_metadata"]["phase"] == "verify"
    assert record.get("failure_reason") == (None if status == "passed" else "wrong_answer")


def test_each_side_gets_its_view(tmp_path: Path) -> None:
    """A harness gets the agent's view of a task and a verifier its own view. Neither gets the whole task."""
    producer, verifier = FakeProducer(), FakeVerifier()
    run(make_context(tmp_path, producer=producer, verifier=verifier))
    assert [resource.name for resource in producer.views[0].resources] == ["question"]
    assert [resource.name for resource in verifier.views[0].test_sandbox] == ["question", "tests"]
    assert [resource.name for resource in verifier.views[0].evaluator] == ["question", "answer"]


def test_a_task_that_cannot_be_judged_costs_no_agent(tmp_path: Path) -> None:
    """D97, D108: a task that its verifier refuses in the preflight ends in ``error``, and its agent is not run."""
    producer, verifier = FakeProducer(), FakeVerifier()
    verifier.check = MaterializationError("the patch does not fit", code="tests-unusable")
    record = run(make_context(tmp_path, producer=producer, verifier=verifier))
    assert (record["verification_status"], record["failure_reason"]) == ("error", "task_unusable")
    assert record["failure_phase"] == "preflight"
    assert "the patch does not fit" in record["failure_message"]
    assert "score" not in record
    assert not producer.views
    assert not verifier.judged


def test_trouble_of_the_machine_in_a_preflight_is_tried_again(tmp_path: Path) -> None:
    """An infrastructure error in the preflight is retried. The record names the engine, not the task, as the reason."""
    verifier = FakeVerifier()
    verifier.check = EngineError("away")
    record = run(make_context(tmp_path, verifier=verifier))
    assert (record["verification_status"], record["failure_reason"]) == ("error", "engine_unavailable")
    assert record["provenance"]["tries"] == {"preflight": 3}


def test_no_verifier_is_pending(tmp_path: Path) -> None:
    """A task whose family has no verifier ends as pending, with a sealed candidate and without a score (N)."""
    record = run(make_context(tmp_path), family="tool_call")
    assert record["verification_status"] == "pending"
    assert "score" not in record
    assert record["candidate_digest"]
    assert record["provenance"]["verifier"] is None


@pytest.mark.parametrize("family", ["short_answer", "tool_call"])
@pytest.mark.parametrize("left_something", [True, False])
def test_an_agent_that_failed_has_failed(tmp_path: Path, family: str, left_something: bool) -> None:
    """An agent that fails is scored as failed, with the reason. A candidate that it left is not judged (L14)."""
    verifier = FakeVerifier()
    context = make_context(
        tmp_path,
        verifier=verifier,
        producer=FakeProducer(hook=lambda _, __, lent: agent_failure(lent.store if left_something else None)),
    )
    record = run(context, family=family)
    assert (record["verification_status"], record["passed"], record["score"]) == ("failed", False, 0.0)
    assert (record["failure_reason"], record["failure_phase"]) == ("agent_exit", "produce")
    assert bool(record["candidate_digest"]) is left_something
    assert "verifier_stdout" not in record
    assert not verifier.judged


def test_a_raised_candidate_error_is_a_failure(tmp_path: Path) -> None:
    """A candidate error that a harness raises is a failure of the agent, as if the harness had returned the error."""
    error = CandidateError(FailureReason.CANDIDATE_EMPTY, "nothing", phase=FailurePhase.SEAL)
    record = run(make_context(tmp_path, producer=FakeProducer(hook=raising(error))))
    assert (record["verification_status"], record["failure_reason"]) == ("failed", "candidate_empty")


FAULTS: list[tuple[Exception, str]] = [
    (EngineError("gone"), "engine_unavailable"),
    (ImageError("no image"), "image_unavailable"),
    (DiskFullError("full"), "out_of_disk"),
    (InfrastructureError("odd"), "sandbox_failed"),
    (MaterializationError("unsafe"), "task_unusable"),
    (ConfigError("changed"), "task_unusable"),
    (OSError(errno.EMFILE, "Too many open files"), "internal_error"),
    (RuntimeError("anything"), "internal_error"),
    (RecursionError(), "internal_error"),
    (MemoryError(), "internal_error"),
]


@pytest.mark.parametrize(("error", "reason"), FAULTS, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("side", ["produce", "verify"])
def test_a_fault_is_an_error_and_never_a_verdict(tmp_path: Path, error: Exception, reason: str, side: str) -> None:
    """A fault that the agent did not cause ends in ``error``, with phase and reason but no score (A15, L08, L15)."""
    hook = raising(error)
    parts = {"producer": FakeProducer(hook=hook)} if side == "produce" else {"verifier": FakeVerifier(hook=hook)}
    record = run(make_context(tmp_path, **parts))
    assert record["verification_status"] == "error"
    assert (record["failure_reason"], record["failure_phase"]) == (reason, side)
    assert "score" not in record
    assert "passed" not in record


def test_a_harness_that_returns_nothing_is_an_error(tmp_path: Path) -> None:
    """A harness result with neither a candidate nor a failure is an internal error, never a pass."""
    record = run(make_context(tmp_path, producer=FakeProducer(hook=lambda *_: AgentResult(candidate=None))))
    assert (record["verification_status"], record["failure_reason"]) == ("error", "internal_error")


def test_the_text_of_a_defect_is_not_recorded(tmp_path: Path) -> None:
    """An internal error is recorded by type and place only, because its text may contain an answer (F13)."""
    record = run(make_context(tmp_path, verifier=FakeVerifier(hook=raising(KeyError("some text of a test")))))
    assert record["failure_message"].startswith("internal error in SecureBench (KeyError at test_task.py:")
    assert "some text" not in json.dumps(record)


@pytest.mark.parametrize("failures", [0, 1, 2])
def test_infrastructure_errors_are_tried_again(tmp_path: Path, failures: int) -> None:
    """A phase with an infrastructure error is retried at most twice, and the tries are recorded (L08)."""
    producer = FakeProducer(hook=raising(EngineError("away"), failures))
    record = run(make_context(tmp_path, producer=producer))
    assert record["verification_status"] == "passed"
    assert record["provenance"]["tries"] == {"preflight": 1, "produce": failures + 1, "verify": 1}


def test_tries_are_bounded(tmp_path: Path) -> None:
    """After the third try the task ends in an error."""
    producer = FakeProducer(hook=raising(EngineError("away")))
    record = run(make_context(tmp_path, producer=producer))
    assert record["verification_status"] == "error"
    assert len(producer.views) == record["provenance"]["tries"]["produce"] == 3


def test_a_sealed_candidate_is_not_produced_again(tmp_path: Path) -> None:
    """After an infrastructure error of the verifier, the same candidate is judged again. The agent runs once (F15)."""
    producer, verifier = FakeProducer(), FakeVerifier(hook=raising(EngineError("away"), 2))
    record = run(make_context(tmp_path, producer=producer, verifier=verifier))
    assert record["verification_status"] == "passed"
    assert (len(producer.views), len(verifier.views)) == (1, 3)


@pytest.mark.parametrize("error", [RuntimeError(), ConfigError("x"), MaterializationError("x")])
def test_only_infrastructure_is_tried_again(tmp_path: Path, error: Exception) -> None:
    """An error because of a defect or a broken task is not retried."""
    producer = FakeProducer(hook=raising(error))
    run(make_context(tmp_path, producer=producer))
    assert len(producer.views) == 1


def test_a_failed_agent_has_no_second_go(tmp_path: Path) -> None:
    """An agent that failed is not run again (A18, L06)."""
    producer = FakeProducer(hook=lambda *_: agent_failure())
    run(make_context(tmp_path, producer=producer))
    assert len(producer.views) == 1


@pytest.mark.parametrize(
    "error",
    [StorageError("no room"), OSError(errno.ENOSPC, "No space left"), OSError(errno.EROFS, "Read-only file system")],
    ids=["storage", "full", "read-only"],
)
def test_trouble_with_our_disk_is_an_error(tmp_path: Path, error: Exception) -> None:
    """A failure to write to the run directory ends the task in ``error`` without a retry (L07)."""
    producer = FakeProducer(hook=raising(error))
    record = run(make_context(tmp_path, producer=producer))
    assert (record["verification_status"], record["failure_reason"]) == ("error", "storage_failed")
    assert len(producer.views) == 1


def test_what_is_judged_is_what_was_sealed(tmp_path: Path) -> None:
    """A sealed candidate is hashed again before it is judged. An altered candidate is not judged (M05)."""

    def tamper(_: int, __: object, lent: Any) -> AgentResult:
        candidate = seal(lent.store, "wrong")
        candidate.path.chmod(0o600)
        candidate.path.write_text("right")
        return AgentResult(candidate=candidate)

    verifier = FakeVerifier()
    record = run(make_context(tmp_path, producer=FakeProducer(hook=tamper), verifier=verifier))
    assert (record["verification_status"], record["failure_reason"]) == ("error", "storage_failed")
    assert "was altered" in record["failure_message"]
    assert not verifier.views


def test_nothing_hidden_is_recorded(tmp_path: Path) -> None:
    """No record or event contains hidden values or evaluation inputs, whether plain or encoded (F13)."""
    leak = f"{HIDDEN} {base64.b64encode(TESTS.encode()).decode()} {HIDDEN.encode().hex()}"

    def produce(_: int, __: object, lent: Any) -> AgentResult:
        lent.report.emit(AgentOutput(stream="stdout", text=leak))
        return AgentResult(candidate=seal(lent.store, leak), stdout=leak, stderr=leak, metadata={"said": [leak]})

    verdict = VerificationResult(
        reason=FailureReason.WRONG_ANSWER, message=leak, stdout=TESTS, stderr=leak, metadata={"expected_answer": HIDDEN}
    )
    sink = Sink()
    context = make_context(
        tmp_path, sink, producer=FakeProducer(hook=produce), verifier=FakeVerifier(hook=lambda *_: verdict)
    )
    record = run(context)
    for text in (json.dumps(record), repr(sink.events)):
        for secret in (HIDDEN, TESTS, base64.b64encode(TESTS.encode()).decode(), HIDDEN.encode().hex()):
            assert secret not in text
    assert record["verifier_metadata"] == {"expected_answer": "<redacted>"}
    assert record["resource_summary"][2]["value"] == "<redacted>"


def test_credentials_are_not_recorded(tmp_path: Path) -> None:
    """The record does not contain the value of an environment variable that the agent was given."""
    context = make_context(tmp_path, producer=FakeProducer("my key is sk-0123"), environment={"KEY": "sk-0123"})
    assert "sk-0123" not in json.dumps(run(context))


def test_keys_of_the_harness_are_not_recorded(tmp_path: Path) -> None:
    """J15: a key of the harness is redacted in candidates, messages, metadata, trajectories and events."""
    key = "sk-canary-0123"

    def produce(_: int, __: object, lent: Any) -> AgentResult:
        lent.report.emit(AgentOutput(stream="stdout", text=key))
        failure = CandidateError(FailureReason.AGENT_EXIT, f"it said {key}", phase=FailurePhase.PRODUCE)
        steps = json.dumps({"text": key})
        return AgentResult(candidate=seal(lent.store, key), failure=failure, metadata={key: key}, trajectory=steps)

    sink = Sink()
    producer = FakeProducer(hook=produce, keys=(key,))
    record = run(make_context(tmp_path, sink, producer=producer, credentials=(key,)))
    trajectory = (tmp_path / record["provenance"]["trajectory"]["path"]).read_text()
    assert key not in json.dumps(record) + repr(sink.events) + trajectory
    error = run(make_context(tmp_path, producer=FakeProducer(hook=raising(EngineError(key))), credentials=(key,)))
    assert key not in json.dumps(error)


def test_a_trajectory_is_named_in_the_record(tmp_path: Path) -> None:
    """The record names the file with the agent's steps. The comparison of records ignores this entry."""

    def produce(number: int, __: object, lent: Any) -> AgentResult:
        return AgentResult(candidate=seal(lent.store, "right"), trajectory=f'{{"step": {number}}}\n')

    producer = FakeProducer(hook=produce)
    first, second = (run(make_context(tmp_path, producer=producer)) for _ in range(2))
    assert first["provenance"]["trajectory"]["sha256"] != second["provenance"]["trajectory"]["sha256"]
    assert comparable(first) == comparable(second)
    (file,) = (tmp_path / "trajectories").iterdir()
    assert second["provenance"]["trajectory"]["path"] == f"trajectories/{file.name}"
    assert json.loads(file.read_text()) == {"step": 2}


@pytest.mark.parametrize("end", [EngineError("gone"), RuntimeError()], ids=lambda error: type(error).__name__)
def test_no_trajectory_of_an_earlier_attempt_stays(tmp_path: Path, end: Exception) -> None:
    """If a task is executed again and ends in an error, the trajectory of the first execution is removed."""

    def produce(number: int, __: object, lent: Any) -> AgentResult:
        if number > 1:
            raise end
        return AgentResult(candidate=seal(lent.store, "right"), trajectory="{}")

    producer = FakeProducer(hook=produce)
    run(make_context(tmp_path, producer=producer))
    assert "trajectory" not in run(make_context(tmp_path, producer=producer))["provenance"]
    assert not list((tmp_path / "trajectories").iterdir())


def test_a_harness_is_lent_the_way_out(tmp_path: Path) -> None:
    """The run's gateway is available to the harness, but to no verifier."""
    gateway, lent = object(), []
    producer = FakeProducer(hook=lambda _, __, context: lent.append(context.gateway))
    run(make_context(tmp_path, producer=producer, gateway=gateway))
    assert lent == [gateway]
    assert not hasattr(VerifyContext, "gateway")


def test_provenance(tmp_path: Path) -> None:
    """A record states the pack, row, image, verifier, usage, attempt and durations of its trial."""
    provenance = run(make_context(tmp_path))["provenance"]
    assert provenance["pack"] == "digest"
    assert provenance["row"] == {"commitment": Commitment(b"k" * 32).to("row"), "public_digest": "public"}
    assert provenance["image"]["reference"] == "securebench/python:3.11"
    assert provenance["verifier"] == {"family": "short_answer", "version": "1", "extension": FAKE.to_json()}
    assert provenance["usage"] == {"tokens": 7}
    assert provenance["attempt"] == 1
    assert set(provenance["durations"]) == {"preflight", "produce", "verify", "total"}


def test_scratch_is_the_verifiers_alone(tmp_path: Path) -> None:
    """A verifier gets an empty directory outside the workspace. It is removed afterwards, even after a crash."""
    seen: list[Path] = []

    def leave(_: int, __: object, lent: Any) -> None:
        assert not list(lent.scratch.iterdir())
        (lent.scratch / "tests.py").write_text(TESTS)
        seen.append(lent.scratch)
        if len(seen) == 1:
            raise EngineError("away")

    context = make_context(tmp_path, verifier=FakeVerifier(hook=leave))
    run(context)
    context.removals.close()
    assert len(seen) == 2
    assert not [path for path in (tmp_path / "scratch").iterdir() if path.is_dir()]
    assert TESTS not in "".join(path.read_text() for path in (tmp_path / "workspaces").rglob("*") if path.is_file())


@pytest.mark.parametrize("keep", KeepWorkspaces)
@pytest.mark.parametrize("answer", ["right", "wrong"])
def test_a_workspace_is_kept_or_removed_after_the_verdict(tmp_path: Path, keep: KeepWorkspaces, answer: str) -> None:
    """Depending on the setting, all workspaces, only those of failed tasks, or none are kept. The rest are removed."""
    place: list[Path] = []

    def work(_: int, __: object, lent: ProduceContext) -> None:
        place.append(lent.workspace)
        (lent.workspace / "deep").mkdir(parents=True)
        (lent.workspace / "deep/file").write_text(answer)

    context = make_context(tmp_path, producer=FakeProducer(answer=answer, hook=work), keep_workspaces=keep)
    run(context)
    context.removals.close()
    is_kept = keep is KeepWorkspaces.ALL or (keep is KeepWorkspaces.FAILURES and answer == "wrong")
    assert (place[0] / "deep/file").exists() is is_kept
    assert place[0].exists() is is_kept
    assert [path.name for path in (tmp_path / "scratch").iterdir()] == [MARKER]


def test_what_cannot_be_removed_is_left_to_the_end_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A workspace that cannot be removed does not change the verdict. It is removed when the run ends."""

    def stuck(path: Path) -> None:
        raise StorageError(f"cannot remove {path.name}", code="workspace-stuck")

    monkeypatch.setattr("securebench.execution.removal.remove_tree", stuck)
    make_private_directory(tmp_path / "scratch")
    context = make_context(tmp_path, removals=Removals(tmp_path / "scratch"))
    assert run(context)["verification_status"] == "passed"
    context.removals.close()
    assert sorted(path.name.partition("-")[0] for path in (tmp_path / "scratch").iterdir()) == [MARKER, "removed"]
    remove_private_directory(tmp_path / "scratch")  # the run does this when it ends
    assert not (tmp_path / "scratch").exists()


def test_the_next_task_does_not_wait_for_a_removal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``remove`` frees a path at once and deletes its tree later. While 32 trees wait for deletion, it blocks."""
    go = threading.Event()
    removed: list[Path] = []

    def slow(path: Path) -> None:
        go.wait(10)
        removed.append(path)

    monkeypatch.setattr("securebench.execution.removal.remove_tree", slow)
    make_private_directory(tmp_path / "trash")
    removals = Removals(tmp_path / "trash")
    for _ in range(32):
        (tmp_path / "task").mkdir()
        removals.remove(tmp_path / "task")
        assert not (tmp_path / "task").exists()
    (tmp_path / "task").mkdir()
    blocked = threading.Thread(target=removals.remove, args=(tmp_path / "task",))
    blocked.start()
    blocked.join(0.1)
    assert blocked.is_alive()
    go.set()
    blocked.join()
    removals.close()
    assert len(removed) == 33


def test_events(tmp_path: Path) -> None:
    """The phases of a task emit events in order, with the task's id."""
    sink = Sink()
    run(make_context(tmp_path, sink))
    assert sink.kinds("pack/one") == [
        "task_start",
        "producer_start",
        "producer_done",
        "verifier_start",
        "verifier_done",
    ]


def test_a_sink_that_raises_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A progress sink that raises is dropped, and the verdict does not change (L19)."""

    class BadSink(Sink):
        def __call__(self, event: Any) -> None:
            raise RuntimeError("boom")

    assert run(make_context(tmp_path, BadSink()))["verification_status"] == "passed"
    assert "a progress sink failed and was dropped" in caplog.text


@pytest.mark.parametrize("side", ["producer", "verifier"])
@pytest.mark.parametrize("how", ["returns", "raises"])
def test_a_stopped_run_voids_what_is_in_flight(tmp_path: Path, side: str, how: str) -> None:
    """A task in progress when the run stops gets no record. Otherwise, its agent might seem to have failed (L12)."""
    context: TaskContext

    def stop(*_: object) -> None:
        context.control.stop()
        if how == "raises":
            raise EngineError("the sandbox was ended")

    fake = FakeProducer(hook=stop) if side == "producer" else FakeVerifier(hook=stop)
    changes: dict[str, Any] = {side: fake}
    context = make_context(tmp_path, **changes)
    with pytest.raises(RunStoppedError):
        run(context)


def test_a_stop_cuts_the_pause_before_a_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop of the run ends the pause before a retry."""
    monkeypatch.setattr(retry, "BACK_OFF", (60,))
    context = make_context(tmp_path, producer=FakeProducer(hook=raising(EngineError("away"))))
    threading.Timer(0.05, context.control.stop).start()
    started = time.monotonic()
    with pytest.raises(RunStoppedError):
        run(context)
    assert time.monotonic() - started < 30


def test_sandbox_events_show_the_agents_side_only(tmp_path: Path) -> None:
    """Events show the commands in an agent's sandbox and their output (F13).

    Of the commands in a verifier's sandbox, events show only the program names.
    """
    sink = Sink()

    def use_sandbox(_: int, __: object, lent: Any) -> None:
        image = lent.driver.resolve_image("securebench/python:3.11")
        with lent.driver.create(SandboxSpec(image=image)) as sandbox:
            sandbox.run(Command(argv=("say", "argument"), timeout_seconds=5))

    def say(program: Any) -> None:
        program.stdout.write(b"printed")

    driver, producer, verifier = ScriptedDriver(), FakeProducer(hook=use_sandbox), FakeVerifier(hook=use_sandbox)
    driver.program("say")(say)
    run(make_context(tmp_path, sink, driver=driver, producer=producer, verifier=verifier))
    names = ["sandbox_create", "sandbox_command", "sandbox_start", "sandbox_result"]
    assert [kind for kind in sink.kinds("pack/one") if kind.startswith("sandbox")] == names * 2
    commands = [event.data["command"] for event in sink.events if event.kind.value == "sandbox_command"]
    outputs = [event.data["output"] for event in sink.events if event.kind.value == "sandbox_result"]
    assert commands == ["say argument", "say"]
    assert outputs == ["printed", ""]


def place(root: Path, name: str) -> Path:
    """Make the directory ``name`` in ``root`` and return its path."""
    (root / name).mkdir()
    return root / name


def void(spent: int, error: InfrastructureError) -> AgentResult:
    """Return the result of a try that ``error`` ended after ``spent`` input tokens."""
    usage: dict[str, Any] = {
        "input_tokens": spent,
        "output_tokens": 1,
        "requests": 4,
        "relay": {"forgiven": 1, "bytes": 9},
    }
    steps = json.dumps({"step": 1, "spent": spent})
    metadata: dict[str, Any] = {"outcome": "provider_failed", "usage": usage}
    return AgentResult(candidate=None, fault=error, metadata=metadata, trajectory=steps, image_id="sha256:one")


def test_an_error_keeps_what_every_try_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If all tries fail, the record has the usage, outcome and trajectory of each, and the total usage."""
    monkeypatch.setattr(retry, "PROVIDER_BACK_OFF", (0, 0))
    error = ProviderError("the provider answered 529", code="provider-failed")
    producer = FakeProducer(hook=lambda number, *_: void(100 * number, error))
    record = run(context := make_context(tmp_path, producer=producer))
    assert (record["verification_status"], record["failure_reason"]) == ("error", "provider_unavailable")
    assert record["producer_metadata"]["outcome"] == "provider_failed"
    provenance = record["provenance"]
    assert [(one["error"], one["outcome"], one["usage"]["input_tokens"]) for one in provenance["failed_tries"]] == [
        ("provider-failed", "provider_failed", spent) for spent in (100, 200, 300)
    ]
    spent = {"input_tokens": 600, "output_tokens": 3, "turns": 0, "requests": 12, "forgiven": 3, "bytes": 27}
    assert provenance["spent"] == spent
    paths = [one["trajectory"]["path"] for one in provenance["failed_tries"]]
    assert len(set(paths)) == 3
    kept = [json.loads((context.trajectories.parent / path).read_text()) for path in paths]
    assert [step["spent"] for step in kept] == [100, 200, 300]
    assert provenance["trajectory"]["path"] == paths[-1]


def test_tries_share_one_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each try gets the usage of earlier tries, in this and in earlier attempts. Forgiven requests do not count."""
    monkeypatch.setattr(retry, "PROVIDER_BACK_OFF", (0, 0))
    spent: list[Spent] = []

    def hook(number: int, _: object, context: ProduceContext) -> AgentResult | None:
        spent.append(context.spent)
        return void(100, ProviderError("529")) if number < 3 else None

    used = Usage(input_tokens=10, requests=7, forgiven=2, bytes=3, unreported_tokens=5, unreported_usd=0.25)
    before = History(attempt=2, spent=used)
    record = json.loads(
        execute_task(make_task(), make_context(tmp_path, producer=FakeProducer(hook=hook)), before).line(0)
    )
    assert spent == [Spent(5, 15, 3, 250_000), Spent(8, 116, 12, 250_000), Spent(11, 217, 21, 250_000)]
    assert record["verification_status"] == "passed"
    assert record["provenance"]["spent"]["input_tokens"] == 210
    assert len(record["provenance"]["failed_tries"]) == 2


def test_a_sealed_candidate_is_only_judged_again(tmp_path: Path) -> None:
    """After an error of the verification, the next attempt runs no agent. Its record is as if no error had occurred."""
    smooth = run(make_context(place(tmp_path, "smooth"), producer=FakeProducer(trajectory='{"step": 1}')))
    producer = FakeProducer(trajectory='{"step": 1}')
    broken = make_context(
        place(tmp_path, "run"), producer=producer, verifier=FakeVerifier(hook=raising(EngineError("gone")))
    )
    error = run(broken)
    assert (error["verification_status"], error["failure_phase"]) == ("error", "verify")
    assert read_entry(json.dumps(error).encode()).can_be_verified
    again = replace(broken, verifier_for=lambda _: FakeVerifier())
    record = json.loads(execute_task(make_task(), again, History(attempt=2, unverified=error)).line(1))
    assert len(producer.views) == 1
    assert comparable(record) == comparable(smooth)
    assert record["provenance"]["trajectory"] == error["provenance"]["trajectory"]
    assert record["provenance"]["attempt"] == 2


@pytest.mark.parametrize("how", ["missing", "altered"])
def test_a_candidate_that_is_no_longer_as_sealed_is_made_again(tmp_path: Path, how: str) -> None:
    """If the sealed candidate of an earlier attempt is missing or altered, the agent runs again."""
    producer = FakeProducer()
    context = make_context(tmp_path, producer=producer, verifier=FakeVerifier(hook=raising(EngineError("gone"))))
    error = run(context)
    sealed = context.store.root / error["candidate_digest"]
    sealed.unlink()
    if how == "altered":
        sealed.write_text("wrong")
    again = replace(context, verifier_for=lambda _: FakeVerifier())
    record = json.loads(execute_task(make_task(), again, History(attempt=2, unverified=error)).line(1))
    assert (len(producer.views), record["verification_status"]) == (2, "passed")
