"""Several trials of each task."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

import pytest

import securebench
from run_fakes import FakeProducer, Sink, seal
from securebench.errors import ConfigError, ImageError
from securebench.execution import retry
from securebench.harnesses.base import AgentResult
from securebench.progress import RunStart
from securebench.results.records.trajectory import TRAJECTORIES
from securebench.results.run_directory.header import read_header
from securebench.tester_run.planning.directory import WORKSPACES
from tester_run.running import comparables, make_parts, records, run, write_run

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.harnesses.base import ProduceContext
    from securebench.tasks import AgentView


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory with a pack of two tasks and a tester YAML. Infrastructure failures are not retried."""
    monkeypatch.setattr(retry, "BACK_OFF", ())
    write_run(tmp_path, 2)
    return tmp_path


def order(root: Path) -> list[tuple[str, int]]:
    """Return the task and the trial of each record, in the order of the journal."""
    return [(record["task_id"].removeprefix("pack/"), record["trial"]) for record in records(root)]


def test_first_trials_come_first(root: Path) -> None:
    """Each task has a record for each trial. The first trials of all tasks come before any second trial."""
    sink = Sink()
    summary = run(root, trials=3, sinks=[sink])
    assert order(root) == [(f"task-{task}", trial) for trial in (1, 2, 3) for task in (0, 1)]
    assert (summary.tasks, summary.total.trials, summary.total.planned, summary.passed) == (2, 3, 6, 6)
    begun = next(event for event in sink.events if isinstance(event, RunStart))
    assert (begun.tasks, begun.trials, begun.to_do) == (2, 3, 6)
    done = [(event.task_id, event.trial) for event in sink.events if event.kind == "task_done"]
    assert done == [(f"pack/{task}", trial) for task, trial in order(root)]


def test_the_tester_yaml_names_the_trials(root: Path) -> None:
    """``run.trials`` sets the number of trials if no option does. It must be at least 1."""
    path = root / "tester.yaml"
    path.write_text(path.read_text().replace("  id: run\n", "  id: run\n  trials: 2\n"))
    assert run(root).total.planned == 4
    path.write_text(path.read_text().replace("trials: 2", "trials: 0"))
    with pytest.raises(ConfigError, match=r"run\.trials must be at least 1"):
        run(root)


def test_each_trial_has_its_own_files(root: Path) -> None:
    """Each trial has its own workspace and trajectory. Names of the second trial end in ``-trial-2``."""
    seen: list[tuple[int, str]] = []

    def hook(_: int, __: AgentView, context: ProduceContext) -> None:
        context.workspace.mkdir(exist_ok=True)
        seen.append((context.trial, context.workspace.name))

    run(root, trials=2, parts=make_parts(FakeProducer(hook=hook, trajectory="{}")))
    first, second = (sorted(name for trial, name in seen if trial == number) for number in (1, 2))
    assert second == [f"{name}-trial-2" for name in first]
    assert {path.name for path in (root / "results" / WORKSPACES).iterdir() if path.is_dir()} >= {*first, *second}
    names = {path.name for path in (root / "results" / TRAJECTORIES).iterdir()}
    assert names == {f"{name}.jsonl" for name in (*first, *second)}


def test_trials_of_one_task_run_at_the_same_time(root: Path) -> None:
    """Four workers run four trials of two tasks at once. Trials of the same task do not disturb each other."""
    four = threading.Barrier(4)

    def hook(*_: object) -> None:
        four.wait(timeout=60)  # raises an error unless four trials get here

    run(root, trials=8, workers=4, parts=make_parts(FakeProducer(hook=hook, trajectory="{}")))
    assert sorted(order(root)) == [(f"task-{task}", trial) for task in (0, 1) for trial in range(1, 9)]
    paths = {record["provenance"]["trajectory"]["path"] for record in records(root)}
    assert len(paths) == 16


def test_the_summary_estimates_from_all_trials(root: Path) -> None:
    """One task always passes, the other in one of three trials: pass@1 is 2/3, pass@3 is 1, pass^3 is 1/2."""

    def hook(_: int, view: AgentView, context: ProduceContext) -> AgentResult | None:
        wrong = view.task_id == "pack/task-1" and context.trial != 2
        return AgentResult(candidate=seal(context.store, "wrong")) if wrong else None

    summary = run(root, trials=3, parts=make_parts(FakeProducer(hook=hook)))
    assert summary.estimates is not None
    reported = summary.estimates.to_json()
    assert [reported[name] for name in ("k", "flaky_tasks", "flaky")] == [3, 1, ["pack/task-1"]]
    values = [getattr(summary.estimates, name).value for name in ("pass_at_1", "pass_at_k", "pass_hat_k")]
    assert values == pytest.approx([2 / 3, 1, 1 / 2])
    assert securebench.read_run(root / "results").summary().estimates == summary.estimates


def test_one_trial_has_a_pass_rate_only(root: Path) -> None:
    """With one trial per task, only pass@1 is estimated. Without a verdict, there are no estimates."""
    estimates = run(root).estimates
    assert estimates is not None
    assert (estimates.pass_at_1.value, estimates.pass_at_k, estimates.pass_hat_k) == (1.0, None, None)
    none = run(root, output_dir=root / "none", parts=make_parts(FakeProducer(hook=_broken)))
    assert none.estimates is None
    assert none.to_json()["estimates"] is None


def _broken(*_: object) -> None:
    raise ImageError("gone")


def failing_once(trial: int) -> FakeProducer:
    """Return a harness that raises an infrastructure error in trial ``trial`` of the first task."""

    def hook(_: int, view: AgentView, context: ProduceContext) -> None:
        if view.task_id.endswith("0") and context.trial == trial:
            raise ImageError("gone")

    return FakeProducer(hook=hook)


def test_an_error_is_redone_for_its_trial_alone(root: Path) -> None:
    """Resuming runs only the trial without a verdict, as attempt 2. The records are those of a run without errors."""
    run(root, trials=2, parts=make_parts(failing_once(2)))
    producer = FakeProducer()
    run(root, trials=2, resume=True, parts=make_parts(producer))
    assert [view.task_id for view in producer.views] == ["pack/task-0"]
    attempts = {(record["task_id"], record["trial"]): record["provenance"]["attempt"] for record in records(root)}
    assert attempts == {
        ("pack/task-0", 1): 1,
        ("pack/task-1", 1): 1,
        ("pack/task-0", 2): 2,
        ("pack/task-1", 2): 1,
    }
    clean = root / "clean"
    clean.mkdir()
    write_run(clean, 2)
    run(clean, trials=2)
    assert comparables(root) == comparables(clean)


def test_a_budget_is_for_one_trial(root: Path) -> None:
    """Each trial of a task starts with no tokens spent, although earlier trials have spent some."""
    spent: list[tuple[int, int]] = []

    def hook(_: int, __: AgentView, context: ProduceContext) -> AgentResult:
        spent.append((context.trial, context.spent.tokens))
        return AgentResult(candidate=seal(context.store, "right"), metadata={"usage": {"input_tokens": 7}})

    parts = make_parts(FakeProducer(hook=hook))
    run(root, trials=2, limit=1, workers=1, parts=parts)
    run(root, trials=3, limit=1, workers=1, parts=parts, resume=True)  # begins when the tokens above are recorded
    assert spent == [(1, 0), (2, 0), (3, 0)]
    assert [record["provenance"]["spent"]["input_tokens"] for record in records(root)] == [7, 7, 7]


def test_a_resumed_run_may_have_more_trials_but_not_fewer(root: Path) -> None:
    """Resuming with more trials runs only the new ones. Fewer are refused: they would leave out known verdicts."""
    run(root, trials=2)
    producer = FakeProducer()
    summary = run(root, trials=3, resume=True, parts=make_parts(producer))
    assert len(producer.views) == 2
    assert summary.passed == summary.total.planned == 6
    header = read_header(root / "results")
    assert header is not None
    assert (header.decisive["trials"], header.information["planned"]) == (3, 6)
    for trials in (2, None):
        with pytest.raises(ConfigError, match="trials was 3 when the run began") as caught:
            run(root, trials=trials, resume=True)
        assert caught.value.code == "resume-mismatch"


def test_a_trial_beyond_the_plan_is_refused(root: Path) -> None:
    """A run of two trials per task is not resumed if its journal has a record of a third trial."""
    run(root, trials=2)
    journal = root / "results" / "candidates.jsonl"
    lines = journal.read_text().splitlines()
    journal.write_text("\n".join([*lines[:3], json.dumps({**json.loads(lines[3]), "trial": 3})]) + "\n")
    with pytest.raises(ConfigError, match="its trial is 3, but the number of trials of each task is 2"):
        run(root, trials=2, resume=True)
