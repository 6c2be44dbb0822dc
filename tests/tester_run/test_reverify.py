"""Judging the candidates of a run again: changed verdicts are listed, and the run directory is only read."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from fault_hooks import hooked
from run_fakes import FakeProducer, FakeVerifier, agent_failure, seal
from securebench.audit.run.verify import Evidence, verify_run
from securebench.benchmark_pack import load_benchmark_pack
from securebench.candidates.store import CANDIDATES
from securebench.errors import ConfigError, EngineError, FailureReason, ImageError
from securebench.execution import retry
from securebench.faults import FaultPoint
from securebench.harnesses.base import AgentResult
from securebench.limits import GIB
from securebench.results.attestation import RunAttestation
from securebench.results.bundle import write_bundle
from securebench.results.comparison import compare, tally
from securebench.results.read import read_run
from securebench.results.records.commitment import KEY_FILE, Commitment
from securebench.results.run_directory.files import JOURNAL
from securebench.results.run_directory.header import read_header
from securebench.results.run_directory.lock import RunLock
from securebench.results.run_directory.source import SOURCE_FILE
from securebench.results.summary import RunEnd
from securebench.signing.keys import PrivateKey
from securebench.signing.signers import KeySigner
from securebench.tester_config import BenchmarkPaths
from securebench.tester_run import RunOptions
from securebench.tester_run.reverify import reverify
from securebench.testing.scripted_sandbox import ScriptedDriver
from securebench.verifiers.base import VerificationResult
from tester_run.running import add_row, configuration, make_parts, pin_framework, records, run, write_run

if TYPE_CHECKING:
    from collections.abc import Callable

    from securebench.harnesses.base import ProduceContext
    from securebench.results.reverification import Reverification
    from securebench.tasks import AgentView

OLDER_RUNS: Final = Path(__file__).parents[1] / "results"
TASKS: Final = 4


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory with a pack of four tasks and a tester YAML. Infrastructure failures are not retried."""
    monkeypatch.setattr(retry, "BACK_OFF", ())
    pin_framework(monkeypatch.setattr)
    write_run(tmp_path, TASKS)
    return tmp_path


def answers(**by_task: AgentResult | Exception | str) -> FakeProducer:
    """Return an agent that answers ``right``. For the tasks in ``by_task``, it returns or raises the given value."""

    def hook(_number: int, view: AgentView, context: ProduceContext) -> AgentResult | None:
        given = by_task.get(view.task_id.removeprefix("pack/").replace("-", "_"))
        if isinstance(given, Exception):
            raise given
        return AgentResult(candidate=seal(context.store, given)) if isinstance(given, str) else given

    return FakeProducer(hook=hook)


def again(root: Path, **options: Any) -> Reverification:
    """Judge the candidates of the run in ``root`` again, and return the result."""
    named = {name: options.pop(name) for name in ("pack", "tester", "parts") if name in options}
    return reverify(root / "results", RunOptions(**options), **{"parts": make_parts(), **named})


def same(result: Reverification) -> tuple[int, int, int]:
    """Return the numbers of unchanged, changed and missing verdicts."""
    return result.verdicts.same, len(result.verdicts.changed), len(result.verdicts.unjudged)


def tree(directory: Path) -> dict[str, object]:
    """Return the mode, modification time, inode and content of a directory and everything in it, by path."""
    found: dict[str, object] = {}
    for path in (directory, *directory.rglob("*")):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        found[str(path)] = (status.st_mode, status.st_mtime_ns, status.st_ino, content)
    return found


def test_the_verdicts_are_the_same(root: Path) -> None:
    """Passes and failures are judged again without the agent, and the verdicts do not change."""
    run(root, parts=make_parts(answers(task_1="wrong", task_2="")))
    agent = answers()
    result = again(root, parts=make_parts(agent))
    assert same(result) == (TASKS, 0, 0)
    assert (result.summary.passed, result.summary.failed) == (2, 2)
    assert not agent.views
    assert (result.differences, result.notes) == ((), ())


def test_the_result_is_a_run_directory_of_its_own(root: Path) -> None:
    """The result is a closed run directory next to the run. It names that run and can be compared with it."""
    run(root, parts=make_parts(answers(task_1="wrong")))
    result = again(root)
    place = root / "results.reverified"
    assert result.summary.output_dir == place
    header, reviewed = read_header(place), read_header(root / "results")
    assert header
    assert header.closing
    assert reviewed
    assert reviewed.closing
    assert header.information["reverifies"] == {
        "run_id": "run",
        "created_at": reviewed.created_at,
        "root": reviewed.closing.root,
        "differences": [],
    }
    old, new = read_run(root / "results"), read_run(place)
    assert (new.run_id, new.label, new.planned) == ("run-reverified", "fake", TASKS)
    pack = load_benchmark_pack(root / "pack/manifest.yaml", root / "pack/tasks.jsonl")
    report = verify_run(place, Evidence(pack=pack, commitment=Commitment.read(place)))
    assert report.exit_code == 0, report.to_json()
    compared = compare(tally(old), tally(new))
    assert (compared.tasks, compared.agreement) == (TASKS, 1.0)
    for record in new.records():
        assert new.candidate(record) == old.candidate(old.find(record.task_id))
        assert record.usage is None
    assert again(root, output_dir=root / "elsewhere").summary.output_dir == root / "elsewhere"


def test_a_reverified_run_can_be_judged_again(root: Path) -> None:
    """The result of judging a run again is itself a run whose candidates can be judged again."""
    run(root)
    again(root)
    result = reverify(root / "results.reverified", RunOptions(), parts=make_parts())
    assert same(result) == (TASKS, 0, 0)
    assert result.summary.output_dir == root / "results.reverified.reverified"


def test_the_result_is_signed(root: Path) -> None:
    """The result may be signed with a key other than the run's, and only the key that signed it can resume it."""
    own, other = PrivateKey.new(), PrivateKey.new()
    run(root, sign=KeySigner(other))
    result = again(root, sign=KeySigner(own))
    assert same(result) == (TASKS, 0, 0)
    place = read_run(result.summary.output_dir)
    assert RunAttestation(place).check(own.public) == own.public.id
    with pytest.raises(ConfigError):
        again(root, sign=KeySigner(other), resume=True)
    assert same(again(root, sign=KeySigner(own), resume=True)) == (TASKS, 0, 0)
    assert RunAttestation(read_run(root / "results")).check(other.public) == other.public.id


def test_records_show_what_they_were_compared_with(root: Path) -> None:
    """Each new record contains the old verdict, so differences can be seen without the records of the old run."""
    run(root, parts=make_parts(answers(task_1="wrong")))
    record = read_run(again(root).summary.output_dir).find("pack/task-1")
    assert record.producer.metadata == {
        "harness": "sealed",
        "recorded": {
            "sequence": 1,
            "verification_status": "failed",
            "failure_reason": "wrong_answer",
            "assurance": "full",
        },
    }


def test_nothing_is_written_into_the_run(root: Path) -> None:
    """Judging a run again changes no name, mode, modification time or content in its directory."""
    run(root, parts=make_parts(answers(task_1="wrong", task_2=agent_failure())))
    before = tree(root / "results")
    again(root)
    again(root, resume=True)
    assert tree(root / "results") == before


def test_the_run_directory_needs_no_permission_to_write(root: Path) -> None:
    """A run whose directory is not writable, even for root, is judged again like any other."""
    run(root)
    results = root / "results"
    subprocess.run(["chmod", "-R", "a-w", str(results)], check=True)
    if os.getuid() == 0:  # file modes do not stop root from writing, but a read-only mount does
        subprocess.run(["mount", "--bind", "-o", "ro", str(results), str(results)], check=True)
        subprocess.run(["mount", "-o", "remount,bind,ro", str(results)], check=True)
    try:
        assert same(again(root)) == (TASKS, 0, 0)
    finally:
        if os.getuid() == 0:
            subprocess.run(["umount", str(results)], check=True)
        subprocess.run(["chmod", "-R", "u+w", str(results)], check=True)


def verdicts(**by_task: VerificationResult) -> FakeVerifier:
    """Return a verifier that returns the given verdicts for the tasks in ``by_task``."""
    return FakeVerifier(hook=lambda _number, view, _: by_task.get(view.task_id[5:].replace("-", "_")))


def judging(verifier: FakeVerifier) -> Any:
    """Return the parts of a run with ``verifier``, in which the agent answers ``task-1`` wrongly."""
    return make_parts(answers(task_1="wrong"), verifier_for=lambda *_: verifier)


def test_a_broken_verifier_is_found(root: Path) -> None:
    """Each task with a different verdict, reason or assurance is listed, and no other task is."""
    run(root, parts=judging(FakeVerifier()))
    weak: dict[str, Any] = {"evidence": {"kind": "exit_code"}}
    broken = verdicts(
        task_0=VerificationResult(reason=FailureReason.TESTS_FAILED, message="broken"),
        task_1=VerificationResult(reason=FailureReason.AMBIGUOUS_ANSWER, message="two answers"),
        task_2=VerificationResult(reason=None, metadata=weak),
    )
    result = again(root, parts=judging(broken))
    assert same(result) == (1, 3, 0)
    shown = [(trial.task_id, str(was), str(now), message) for trial, was, now, message in result.verdicts.changed]
    assert shown == [
        ("pack/task-0", "passed (full)", "failed (tests_failed, full)", "broken"),
        ("pack/task-1", "failed (wrong_answer, full)", "failed (ambiguous_answer, full)", "two answers"),
        ("pack/task-2", "passed (full)", "passed (exit_code)", ""),
    ]
    first = json.loads(json.dumps(result.to_json()))["changed"][0]
    assert first["is"] == {
        "verification_status": "failed",
        "failure_reason": "tests_failed",
        "assurance": "full",
    }


def test_a_verifier_that_fails_gives_no_verdict(root: Path) -> None:
    """After an infrastructure error a task has no verdict: neither the same nor a changed one. --resume retries it."""
    run(root, parts=judging(FakeVerifier()))

    def broken(number: int, *_: object) -> None:
        if number == 1:
            raise EngineError("the engine is gone")

    result = again(root, parts=judging(FakeVerifier(hook=broken)))
    assert same(result) == (TASKS - 1, 0, 1)
    assert "the engine is gone" in result.verdicts.unjudged[0].why
    assert same(again(root, resume=True, parts=judging(FakeVerifier()))) == (TASKS, 0, 0)


def test_what_has_no_verdict_is_listed(root: Path) -> None:
    """Agent failures and errors are listed with their reasons, and count neither as the same nor as changed."""
    agent = answers(task_0=agent_failure(), task_1=ImageError("no such image"))
    run(root, parts=make_parts(agent))
    result = again(root)
    assert same(result) == (2, 0, 2)
    first, second = result.verdicts.unjudged
    assert (first.trial.task_id, first.why) == (
        "pack/task-0",
        "the agent failed, so nothing was judged: the agent exited with 1",
    )
    assert second.why.startswith("the run has no verdict on this trial: no such image")
    # The agent's failure is repeated with its reason, so that the pass rates of both runs are over the same trials.
    assert (result.summary.passed, result.summary.failed, result.summary.errors) == (2, 1, 1)
    failed = read_run(result.summary.output_dir).find("pack/task-0")
    assert (failed.reason, failed.assurance) == (FailureReason.AGENT_EXIT, None)


def test_the_candidate_of_a_failed_agent_is_not_judged(root: Path) -> None:
    """If the agent failed, its candidate is not judged again, so the failure cannot become a pass."""

    def hook(number: int, _view: AgentView, context: ProduceContext) -> AgentResult | None:
        return agent_failure(context.store) if number == 1 else None

    run(root, parts=make_parts(FakeProducer(hook=hook)))
    result = again(root)
    assert same(result) == (TASKS - 1, 0, 1)
    assert (result.summary.passed, result.summary.failed) == (TASKS - 1, 1)


def test_a_family_without_verifier_is_listed(tmp_path: Path) -> None:
    """Tasks of a family without a verifier are listed as unjudged and are pending in both runs."""
    write_run(tmp_path, 2, family="tool_call")
    run(tmp_path)
    result = again(tmp_path)
    assert same(result) == (0, 0, 2)
    assert {why for _, why in result.verdicts.unjudged} == {"its family has no verifier"}
    assert result.summary.total.pending == 2


def candidates(root: Path) -> dict[str, Path]:
    """Return the path of the sealed candidate of each task, by the id without ``pack/``."""
    return {
        record["task_id"][5:]: root / "results" / CANDIDATES / record["candidate_digest"] for record in records(root)
    }


def distinct(count: int) -> FakeProducer:
    """Return an agent with a different wrong answer to each of the first ``count`` tasks."""
    return answers(**{f"task_{number}": f"wrong {number}" for number in range(count)})


@pytest.mark.parametrize("tasks", [1, 7])
def test_missing_and_altered_candidates_are_listed(tasks: int, tmp_path: Path) -> None:
    """Missing and altered candidates have no verdict, however many they are; the other candidates are judged."""
    write_run(tmp_path, tasks + 2)
    run(tmp_path, parts=make_parts(distinct(tasks + 2)))
    found = candidates(tmp_path)
    for number in range(tasks):
        found[f"task-{number}"].unlink()
    altered = found[f"task-{tasks}"]
    altered.chmod(0o644)
    altered.write_text("right")
    result = again(tmp_path)
    assert same(result) == (1, 0, tasks + 1)
    *missing, changed = (why for _, why in result.verdicts.unjudged)
    assert all("the sealed candidate is missing" in why for why in missing)
    assert "the sealed candidate was altered" in changed
    assert (result.summary.ending, result.summary.passed) == (RunEnd.FINISHED, 0)


def test_candidates_that_are_no_files_are_listed(root: Path, tmp_path: Path) -> None:
    """A link, directory or FIFO in place of a candidate is not read, nor is a linked directory of candidates."""
    run(root, parts=make_parts(distinct(TASKS)))
    found = candidates(root)
    outside = tmp_path / "outside"
    outside.write_bytes(found["task-0"].read_bytes())
    for number in range(3):
        found[f"task-{number}"].unlink()
    found["task-0"].symlink_to(outside)
    found["task-1"].mkdir()
    os.mkfifo(found["task-2"])
    assert same(again(root)) == (1, 0, 3)
    store = root / "results" / CANDIDATES
    store.rename(tmp_path / "store")
    store.symlink_to(tmp_path / "store")
    assert same(again(root, output_dir=root / "second")) == (0, 0, TASKS)


def rewritten(root: Path, **changes: object) -> None:
    """Change the records of the run as an attacker would, and recompute the hash chain and the closing."""
    from securebench.results.records.chain import line_hash
    from securebench.results.run_directory.closing import Closing, RecordTally

    directory = root / "results"
    header = read_header(directory)
    assert header
    previous, lines = header.genesis, []
    for record in records(root):
        line = json.dumps({**record, **changes, "previous": previous}).encode() + b"\n"
        lines.append(line)
        previous = line_hash(line)
    (directory / JOURNAL).write_bytes(b"".join(lines))
    tallied = RecordTally(previous, len(lines))
    for record in records(root):
        tallied.statuses[record["verification_status"]] += 1
        tallied.candidates.add(record["candidate_digest"])
    closing = Closing.of(tallied, header.planned, "finished", directory)
    replace(header, closing=None).closed(closing).write(directory)


def test_a_record_that_contradicts_its_candidate_is_listed(root: Path) -> None:
    """A record whose text is not the sealed text is refused. A record with another kind of candidate is not judged."""
    run(root)
    rewritten(root, candidate_text="another text")
    with pytest.raises(ConfigError, match="'candidate_digest' is not the digest of 'candidate_text'"):
        again(root)
    rewritten(root, candidate_text=None, candidate_patch="a patch")
    result = again(root, output_dir=root / "second")
    assert same(result) == (0, 0, TASKS)
    assert "no candidate of the kind text" in result.verdicts.unjudged[0].why


def test_a_redacted_text_stays_redacted(tmp_path: Path) -> None:
    """A secret that was redacted in the old record is redacted in the new one, although the candidate contains it."""
    write_run(tmp_path, 1, env=["KEY"])
    agent = answers(task_0="the key is s3cret-s3cret")
    run(tmp_path, parts=make_parts(agent), variables={"KEY": "s3cret-s3cret"})
    result = again(tmp_path, variables={})
    assert same(result) == (1, 0, 0)
    old, new = records(tmp_path)[0], read_run(result.summary.output_dir).find("pack/task-0").raw
    assert old["candidate_redacted"] is True
    assert {name: new[name] for name in new if name.startswith("candidate")} == {
        name: old[name] for name in old if name.startswith("candidate")
    }


def test_forged_verdicts_are_found(root: Path) -> None:
    """Failures that were forged into passes are found, although the attacker recomputed the hash chain."""
    run(root, parts=make_parts(distinct(TASKS)))
    for name in ("failure_reason", "failure_phase", "failure_message"):
        journal = root / "results" / JOURNAL
        lines = [json.loads(line) for line in journal.read_bytes().splitlines()]
        journal.write_bytes(
            b"".join(json.dumps({k: v for k, v in one.items() if k != name}).encode() + b"\n" for one in lines)
        )
    metadata = {**records(root)[0]["verifier_metadata"], "reason": None}
    rewritten(root, verification_status="passed", passed=True, score=1.0, verifier_metadata=metadata)
    result = again(root)
    assert same(result) == (0, TASKS, 0)
    assert {str(now) for _, _, now, _ in result.verdicts.changed} == {"failed (wrong_answer, full)"}


def test_selected_tasks(root: Path) -> None:
    """``--task`` selects by pattern among the tasks that have records; a pattern that matches nothing is an error."""
    run(root)
    result = again(root, task=("*-[12]",))
    assert same(result) == (2, 0, 0)
    assert result.summary.part
    assert (result.summary.part.planned, result.summary.part.tasks) == (2, TASKS)
    with pytest.raises(ConfigError, match="selection-empty"):
        again(root, task=("other",), output_dir=root / "second")


def test_a_run_of_a_part_of_the_pack(root: Path) -> None:
    """Only tasks with records are judged again; to select only tasks without records is an error."""
    run(root, limit=2)
    assert same(again(root)) == (2, 0, 0)
    with pytest.raises(ConfigError, match="has no record of the selected tasks"):
        again(root, task=("*-3",), output_dir=root / "second")


def test_trials(root: Path) -> None:
    """Each trial is judged again with its own candidate."""

    def hook(_number: int, view: AgentView, context: ProduceContext) -> AgentResult:
        is_right = context.trial == 2 or view.task_id.endswith("0")
        return AgentResult(candidate=seal(context.store, "right" if is_right else f"wrong {view.task_id}"))

    run(root, trials=2, parts=make_parts(FakeProducer(hook=hook)))
    (root / "results" / CANDIDATES / candidate_of(root, "pack/task-3", 1)).unlink()
    result = again(root, workers=2)
    assert same(result) == (2 * TASKS - 1, 0, 1)
    assert [(trial.task_id, trial.trial) for trial, _ in result.verdicts.unjudged] == [("pack/task-3", 1)]
    assert (result.summary.total.trials, result.summary.passed, result.summary.failed) == (2, 5, 2)


def candidate_of(root: Path, task_id: str, trial: int) -> str:
    """Return the digest of a trial's candidate."""
    found = {(record["task_id"], record["trial"]): record["candidate_digest"] for record in records(root)}
    return str(found[task_id, trial])


class _StopError(Exception):
    """An error that ends a run immediately, like a crash."""


def test_interrupted_and_resumed(root: Path) -> None:
    """Records written before a crash are kept, and resuming judges only candidates without a record."""
    parts = make_parts(answers(task_1="wrong", task_3=agent_failure()), verifier_for=lambda *_: FakeVerifier())
    run(root, parts=parts)
    left = [2]

    def crash(point: FaultPoint, _subject: str) -> None:
        left[0] -= point is FaultPoint.RECORD_WRITTEN
        if not left[0]:
            raise _StopError

    with hooked(crash), pytest.raises(_StopError):
        again(root, parts=parts)
    kept = (root / "results.reverified" / JOURNAL).read_bytes()
    with pytest.raises(ConfigError, match="pass --resume"):
        again(root, parts=parts)
    verifier = FakeVerifier()
    result = again(root, resume=True, parts=make_parts(verifier_for=lambda *_: verifier))
    assert [view.task_id for view in verifier.views] == ["pack/task-2"]
    assert same(result) == (3, 0, 1)
    assert (root / "results.reverified" / JOURNAL).read_bytes().startswith(kept)


def test_it_resumes_only_for_the_same_run(root: Path) -> None:
    """If the judged run has new records, ``--resume`` is refused, so that old and new verdicts are not mixed."""
    run(root, limit=2)
    again(root)
    run(root, resume=True, limit=3)
    with pytest.raises(ConfigError, match="the run whose candidates are judged again is not the same"):
        again(root, resume=True)


def test_an_interrupted_run_is_judged_as_far_as_it_came(root: Path) -> None:
    """For a run without a closing, a note says that records may be missing at its end."""

    def crash(point: FaultPoint, _subject: str) -> None:
        if point is FaultPoint.RECORD_WRITTEN and len(records(root)) == 2:
            raise _StopError

    with hooked(crash), pytest.raises(_StopError):
        run(root)
    result = again(root)
    assert same(result) == (2, 0, 0)
    assert result.notes == (
        "the run was not closed, so records may be missing at its end",
        "2 of 4 trials of the run have no record",
    )


def test_a_run_without_records(root: Path) -> None:
    """Judging a run without records again is an error that says so."""

    def crash(point: FaultPoint, _subject: str) -> None:
        if point is FaultPoint.HEADER_WRITTEN:
            raise _StopError

    with hooked(crash), pytest.raises(_StopError):
        run(root)
    with pytest.raises(ConfigError, match="has no record"):
        again(root)


def test_a_run_in_progress_is_refused(root: Path) -> None:
    """A run that another process is writing is refused, because its records are incomplete."""
    run(root)
    with RunLock(root / "results"), pytest.raises(ConfigError, match="run-active"):
        again(root)


@pytest.mark.parametrize("version", [2, 3])
def test_an_older_run_is_refused(version: int, tmp_path: Path) -> None:
    """A run in an older format is refused: without a hash chain, records of other runs could not be detected."""
    directory = tmp_path / "run"
    shutil.copytree(OLDER_RUNS / f"version_{version}_run", directory)
    with pytest.raises(ConfigError, match=f"in format {version}; only runs of format") as caught:
        reverify(directory, RunOptions(), parts=make_parts())
    assert caught.value.code == "run-version"


def test_a_damaged_run_is_refused(root: Path) -> None:
    """Records that contradict themselves are refused before the output directory is created."""
    run(root)
    journal = root / "results" / JOURNAL
    journal.write_bytes(journal.read_bytes().replace(b'"right"', b'"wrong"'))
    with pytest.raises(ConfigError, match="record-contradictory"):
        again(root)
    assert not (root / "results.reverified").exists()


@pytest.mark.parametrize("name", ["results", "results/inside", "results/candidates", "link/x"])
def test_nothing_is_written_below_the_run(name: str, root: Path) -> None:
    """An output directory that is the run directory or inside it is refused, also if its path has a symlink."""
    run(root)
    (root / "link").symlink_to("results")
    before = tree(root / "results")
    with pytest.raises(ConfigError, match="must not be changed"):
        again(root, output_dir=root / name)
    assert tree(root / "results") == before


def move_pack(root: Path) -> BenchmarkPaths:
    """Move the pack, and return its new location."""
    (root / "pack").rename(root / "moved")
    return BenchmarkPaths(root / "moved/manifest.yaml", root / "moved/tasks.jsonl")


def test_the_pack_may_have_moved(root: Path) -> None:
    """If the pack was moved, the error names the option for its new location, and that option works."""
    run(root)
    pack = move_pack(root)
    with pytest.raises(ConfigError, match="no longer at") as caught:
        again(root)
    assert caught.value.code == "pack-missing"
    assert "--pack" in str(caught.value)
    assert same(again(root, pack=pack)) == (TASKS, 0, 0)


def test_a_bundle_can_be_judged_again(root: Path) -> None:
    """An unpacked bundle of a run can be judged again if the pack is given."""
    run(root, parts=make_parts(answers(task_1="wrong")))
    with (root / "bundle.tar").open("wb") as file:
        write_bundle(root / "results", file)
    with tarfile.open(root / "bundle.tar") as archive:
        archive.extractall(root / "unpacked", filter="data")
    (unpacked,) = (root / "unpacked").iterdir()
    pack = BenchmarkPaths(root / "pack/manifest.yaml", root / "pack/tasks.jsonl")
    assert same(reverify(unpacked, RunOptions(), pack=pack, parts=make_parts())) == (TASKS, 0, 0)


def test_a_published_run_does_not_say_where_its_pack_is(root: Path) -> None:
    """For a published run, the pack must be given, and a note says that its hidden content was not compared."""
    run(root)
    (root / "results" / SOURCE_FILE).unlink()
    (root / "results" / KEY_FILE).unlink()
    with pytest.raises(ConfigError, match="pass --pack PACK"):
        again(root)
    result = again(root, pack=BenchmarkPaths(root / "pack/manifest.yaml", root / "pack/tasks.jsonl"))
    assert same(result) == (TASKS, 0, 0)
    assert result.notes == (
        "hidden content of the pack could not be compared with that of the run: the run has no commitment.key",
    )


def change(root: Path, before: str, after: str) -> None:
    """Replace ``before`` with ``after`` in the second row of the pack."""
    path = root / "pack" / "tasks.jsonl"
    first, second, *rest = path.read_text().splitlines(keepends=True)
    path.write_text("".join((first, second.replace(before, after), *rest)))


def test_another_pack_is_refused(root: Path) -> None:
    """A pack with a changed question, answer, row id or pack id, or with an additional row, is refused."""
    run(root)
    (root / "pack").rename(root / "kept")
    than = "than the pack of the run"
    cases: tuple[tuple[Callable[[Path], None], str], ...] = (
        (
            lambda root: change(root, '"?"', '"What?"'),
            f"other public content {than}; the first changed row is 'pack/task-1'",
        ),
        (
            lambda root: change(root, "right", "other"),
            f"other hidden content {than}, or .*changed row is 'pack/task-1'",
        ),
        (lambda root: change(root, "task-1", "task-9"), r"the first changed row is 'pack/task-1'"),
        (add_row, f"this pack has other public content {than}"),
        (lambda root: rename(root, "other"), r"it is 'other', not 'pack'"),
    )
    for edit, message in cases:
        shutil.rmtree(root / "pack", ignore_errors=True)
        shutil.copytree(root / "kept", root / "pack")
        edit(root)
        with pytest.raises(ConfigError, match=message) as caught:
            again(root)
        assert caught.value.code == "pack-differs"
        assert not (root / "results.reverified").exists()


def rename(root: Path, name: str) -> None:
    """Change the id of the pack to ``name``."""
    (root / "pack/manifest.yaml").write_text(f"id: {name}\nversion: 1\n")


def test_hidden_content_is_not_compared_without_the_key(root: Path) -> None:
    """Without the commitment key, a pack with a changed answer is accepted, and a verdict changes."""
    run(root)
    (root / "results" / KEY_FILE).unlink()
    change(root, "right", "other")
    result = again(root)
    assert same(result) == (TASKS - 1, 1, 0)
    assert "hidden content" in result.notes[0]


def test_records_of_another_row_are_refused(root: Path) -> None:
    """A record whose row is not the row in the pack is refused, although the header matches the pack."""
    run(root)
    provenance = records(root)[0]["provenance"]
    rewritten(root, provenance={**provenance, "row": {"commitment": "0" * 64, "public_digest": "0" * 64}})
    with pytest.raises(ConfigError, match="its row of the task 'pack/task-0' is missing or differs"):
        again(root)


def test_policy_and_limits_are_those_of_the_run(root: Path) -> None:
    """Verification policy and limits are taken from run.json; no tester YAML is needed."""
    path = root / "tester.yaml"
    path.write_text(
        path.read_text()
        + "sandbox: {limits: {memory: 2g, cpus: 1.5}}\nverification: {disallow_dangerous_commands: false}\n"
    )
    run(root, parts=judging(FakeVerifier()))
    path.unlink()
    seen = []
    messages: list[str] = []
    verifier = FakeVerifier(hook=lambda _number, _view, context: seen.append(context))
    assert same(again(root, parts=judging(verifier), notify=messages.append)) == (TASKS, 0, 0)
    assert any("dangerous commands" in message for message in messages)
    assert {(context.limits.memory, context.limits.cpus) for context in seen} == {(2 * GIB, 1.5)}
    assert not seen[0].policy.disallow_dangerous_commands


def test_a_hostile_number_of_trials_is_refused(root: Path) -> None:
    """A header with a billion trials is refused, because a plan of that size would exhaust the memory."""
    run(root)
    header = read_header(root / "results")
    assert header
    many = 10**9
    information = {**header.information, "planned": TASKS * many}
    replace(header, closing=None, decisive={**header.decisive, "trials": many}, information=information).write(
        root / "results"
    )
    with pytest.raises(ConfigError, match=r"run\.json: the run header is damaged") as caught:
        again(root)
    assert caught.value.code == "run-header-damaged"


@pytest.mark.parametrize(
    ("section", "value"),
    [
        ("run_id", ""),
        ("run_id", "a\nb"),
        ("harness", {"type": "command", "name": "\x1b[2J"}),
        ("limits", {"memory": 10**30}),
        ("limits", {"memory": "all"}),
        ("limits", {"other": 1}),
        ("limits", []),
        ("verification", {"deny_commands": ["rm"]}),
        ("selection", {"task": [1]}),
    ],
)
def test_hostile_settings_are_refused(section: str, value: Any, root: Path) -> None:
    """Invalid settings in run.json are refused: they are checked like those in a tester YAML."""
    run(root)
    header = read_header(root / "results")
    assert header
    damaged = replace(header, closing=None, decisive={**header.decisive, section: value})
    damaged.write(root / "results")
    if section != "selection":  # records contain a digest of the other sections, and would not match
        (root / "results" / JOURNAL).unlink()
    with pytest.raises(ConfigError) as caught:
        again(root)
    assert caught.value.code == "run-header-damaged"


def test_the_driver_is_that_of_the_run(root: Path) -> None:
    """The driver of the run is used unless the user names another; if it fails, the error names the option."""
    run(root)
    drivers = []

    def make_driver(config: Any, _notify: object) -> ScriptedDriver:
        drivers.append((config.sandbox.driver, config.sandbox.runtime))
        return ScriptedDriver()

    again(root, parts=make_parts(make_driver=make_driver))
    again(root, parts=make_parts(make_driver=make_driver), driver="docker", output_dir=root / "second")
    assert drivers == [("scripted", None), ("docker", None)]

    def gone(*_: object) -> ScriptedDriver:
        raise EngineError("no engine", hint="start it")

    with pytest.raises(EngineError, match="start it; the run used this driver; pass --driver auto"):
        again(root, parts=make_parts(make_driver=gone), output_dir=root / "third")


def test_what_else_differs_is_reported(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A different driver, image, framework or verifier version is listed in the result and in the new run.json."""
    run(root, parts=judging(FakeVerifier()))
    verifier = FakeVerifier()
    verifier.version = "2"
    pinned = {"version": "9", "digest": "another"}
    monkeypatch.setattr("securebench.tester_run.planning.plan.framework_provenance", lambda: pinned)
    driver = ScriptedDriver()
    resolve, info = driver.resolve_image, driver.info()
    monkeypatch.setattr(driver, "resolve_image", lambda *given: replace(resolve(*given), id="sha256:" + "1" * 64))
    monkeypatch.setattr(driver, "info", lambda: replace(info, name="other"))
    result = again(root, parts=make_parts(driver=driver, verifier_for=lambda *_: verifier))
    assert same(result) == (TASKS, 0, 0)
    found = [str(difference) for difference in result.differences]
    assert found[:3] == [
        "framework.digest was pinned, and is another now",
        "framework.version was 0, and is 9 now",
        "sandbox.driver was scripted, and is other now",
    ]
    assert found[3] == "verifiers.short_answer.version was 1, and is 2 now"
    assert found[4].startswith("images.securebench/python:3.11 was sha256:")
    header = read_header(result.summary.output_dir)
    assert header
    described: Any = header.information["reverifies"]
    assert [one["name"] for one in described["differences"]] == [one.name for one in result.differences]


def test_another_verifier_is_refused(root: Path) -> None:
    """If a different verifier judged the run, the built-in verifier of the family is refused."""
    run(root, parts=judging(FakeVerifier()))
    with pytest.raises(ConfigError, match="judged short_answer with a different verifier") as caught:
        again(root)
    assert caught.value.code == "verifier-differs"
    assert "--config" in str(caught.value)


@pytest.fixture
def _extension(monkeypatch: pytest.MonkeyPatch) -> None:
    """Install an extension that judges short answers."""
    from securebench import plugins
    from securebench.plugins import ExtensionKind
    from tester_run.lenient_verifier import LenientVerifier

    monkeypatch.setattr(plugins, "_registered", {})
    plugins.register(ExtensionKind.VERIFIER, "lenient", LenientVerifier)


@pytest.mark.usefixtures("_extension")
def test_an_extension_gets_its_settings_from_a_tester_yaml(root: Path) -> None:
    """An extension judges again only if the tester YAML gives it the settings that it had in the run."""
    path = root / "tester.yaml"
    plain = path.read_text()
    setting = "verification: {{verifiers: {{short_answer: {{type: lenient, config: {{accepted: {}}}}}}}}}\n"
    path.write_text(plain + setting.format("wrong"))
    run(root, parts=make_parts(answers(task_1="wrong")))
    path.write_text(plain)
    for text in (plain, plain + setting.format("other")):
        path.write_text(text)
        with pytest.raises(ConfigError, match="judged short_answer with a different verifier or different settings"):
            again(root, tester=configuration(root))
    path.write_text(plain + setting.format("wrong"))
    result = again(root, tester=configuration(root))
    assert same(result) == (TASKS, 0, 0)
    assert result.summary.passed == TASKS
