"""The budget of a run in money, tested with fakes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from run_fakes import FakeProducer, Sink, seal
from securebench.cli.run_command import EXIT_BUDGET, exit_code
from securebench.egress.gateway import Gateway
from securebench.errors import ConfigError, Problem, ProviderError
from securebench.execution import retry
from securebench.harnesses.base import AgentResult
from securebench.progress import RunStart, TaskDone
from securebench.results.read import read_run
from securebench.results.summary import RunEnd
from tester_run.running import configuration, make_parts, pin_framework, records, run, write_run

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.harnesses.base import ProduceContext
    from securebench.tasks import AgentView


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "PROVIDER_BACK_OFF", (0, 0))
    pin_framework(monkeypatch.setattr)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a directory with a pack of six tasks and a tester YAML."""
    write_run(tmp_path)
    return tmp_path


def costing(usd: float, *, fails: bool = False) -> FakeProducer:
    """Return a harness whose agents cost ``usd`` on each try. With ``fails``, the try ends with a provider error."""

    def hook(_: int, __: AgentView, context: ProduceContext) -> AgentResult:
        fault = ProviderError("529", code="provider-refused") if fails else None
        candidate = None if fails else seal(context.store, "right")
        return AgentResult(candidate=candidate, fault=fault, metadata={"usage": {"cost_usd": usd}})

    return FakeProducer(hook=hook)


def test_a_run_stops_at_its_budget_and_goes_on_with_more(root: Path) -> None:
    """No task starts after the budget is reached.

    --resume with a larger budget runs more tasks. --resume without a budget runs all that are left.
    """
    sink = Sink()
    summary = run(root, parts=make_parts(costing(0.1)), budget_usd=0.3, sinks=[sink])
    assert (summary.ending, summary.passed, summary.total.not_run) == (RunEnd.OUT_OF_BUDGET, 3, 3)
    assert (exit_code(summary), summary.problems, summary.budget_usd) == (EXIT_BUDGET, (), 0.3)
    assert len(records(root)) == 3
    start, *_ = [event for event in sink.events if isinstance(event, RunStart)]
    assert (start.budget_usd, start.cost_usd) == (0.3, 0.0)
    costs = [event.run_cost_usd or 0.0 for event in sink.events if isinstance(event, TaskDone)]
    assert costs == sorted(costs)
    assert costs[-1] == 0.3
    # The cost in the event of a task may already include later tasks.
    assert all(cost >= least for cost, least in zip(costs, (0.1, 0.2, 0.3), strict=True))
    assert read_run(root / "results").summary().ending is RunEnd.OUT_OF_BUDGET

    again = run(root, parts=make_parts(costing(0.1)), budget_usd=0.3, resume=True)
    assert (again.ending, again.passed) == (RunEnd.OUT_OF_BUDGET, 3)
    more = run(root, parts=make_parts(costing(0.1)), budget_usd=0.45, resume=True)
    assert (more.ending, more.passed) == (RunEnd.OUT_OF_BUDGET, 5)
    last = run(root, parts=make_parts(costing(0.1)), resume=True)
    assert (last.ending, last.passed, exit_code(last), last.budget_usd) == (RunEnd.FINISHED, 6, 0, None)


def test_a_budget_that_is_used_up_pays_no_check(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resumed run does not check its provider if its budget is used up."""
    checks: list[int] = []

    def check(*_: object) -> dict[str, Any]:
        checks.append(len(records(root)) if (root / "results" / "candidates.jsonl").exists() else 0)
        return {"cost_usd": 0.01}

    monkeypatch.setattr(FakeProducer, "check_provider", check)
    run(root, parts=make_parts(costing(0.1)), budget_usd=0.2)
    run(root, parts=make_parts(costing(0.1)), budget_usd=0.2, resume=True)
    run(root, parts=make_parts(costing(0.1)), budget_usd=0.3, resume=True)
    assert checks == [0, 2]


def test_tasks_in_progress_finish(root: Path) -> None:
    """Tasks in progress when the budget is reached finish and are scored, so a run may cost more than its budget."""
    summary = run(root, parts=make_parts(costing(1)), budget_usd=0.5, workers=2)
    assert summary.ending is RunEnd.OUT_OF_BUDGET
    assert 1 <= summary.passed <= 2
    assert summary.passed == summary.total.scored


def test_a_run_that_needs_all_of_its_budget_is_finished(root: Path) -> None:
    """A run that reaches its budget with its last task is finished, and not out of budget."""
    summary = run(root, parts=make_parts(costing(0.1)), budget_usd=0.6)
    assert (summary.ending, summary.passed, exit_code(summary)) == (RunEnd.FINISHED, 6, 0)


def test_tries_without_a_verdict_cost_money(root: Path) -> None:
    """The cost of errors counts when the run is resumed. It is not counted again in the new record of a trial."""
    summary = run(root, parts=make_parts(costing(0.1, fails=True)), budget_usd=0.2)
    assert (summary.ending, summary.errors) == (RunEnd.OUT_OF_BUDGET, 2)
    resumed = run(root, parts=make_parts(costing(0.1)), budget_usd=0.5, resume=True)
    assert (resumed.ending, resumed.passed, resumed.usage.cost_usd) == (RunEnd.OUT_OF_BUDGET, 3, 0.5)


def test_what_was_not_reported_counts_against_the_budget(root: Path) -> None:
    """The possible cost of unreported tokens counts against the budget, also when the run is resumed."""

    def hook(_: int, __: AgentView, context: ProduceContext) -> AgentResult:
        usage: Any = {"requests": 1, "cost_usd": 0.1, "relay": {"unreported_tokens": 9, "unreported_usd": 0.4}}
        return AgentResult(candidate=seal(context.store, "right"), fault=None, metadata={"usage": usage})

    parts = make_parts(FakeProducer(hook=hook))
    summary = run(root, parts=parts, budget_usd=1)
    assert (summary.ending, summary.passed, summary.usage.cost_usd) == (RunEnd.OUT_OF_BUDGET, 2, 0.2)
    assert run(root, parts=parts, budget_usd=1.5, resume=True).passed == 3


def test_interrupted_tasks_cost_money(root: Path) -> None:
    """The cost of interrupted tasks, which have no record, is taken from the egress log.

    An invalid ``cost_usd`` counts as 0. In this test the tasks have records, but only the log contains costs.
    """

    class LoggingGateway(Gateway):
        def close(self) -> None:
            """Do nothing: this gateway opened nothing."""

    def hook(number: int, view: AgentView, context: ProduceContext) -> None:
        assert context.gateway is not None
        for cost in (0.1, -1, "x", True, None) if number < 3 else ():
            line: dict[str, Any] = {"task_id": view.task_id, "trial": 1, "kind": "relay"}
            context.gateway._log({**line, "cost_usd": cost, "unreported_usd": 0.1})

    parts = make_parts(FakeProducer(hook=hook, has_egress=True), make_gateway=LoggingGateway)
    run(root, parts=parts, limit=2)
    stopped = run(root, parts=parts, resume=True, budget_usd=1.2)
    assert (stopped.ending, stopped.passed) == (RunEnd.OUT_OF_BUDGET, 2)
    assert run(root, parts=parts, resume=True, budget_usd=1.21).passed == 6


def test_the_budget_may_be_in_the_tester_yaml(root: Path) -> None:
    """A budget in the tester YAML is written to the header. The run may be resumed with another budget."""
    path = root / "tester.yaml"
    path.write_text(
        path.read_text().replace("  output_dir: results\n", "  output_dir: results\n  budget: {usd: 0.2}\n")
    )
    assert configuration(root).run.budget_usd == 0.2
    run(root, parts=make_parts(costing(0.1)))
    header: Any = json.loads((root / "results" / "run.json").read_text())
    assert header["information"]["budget"] == {"usd": 0.2}
    assert header["closing"]["ending"] == "out_of_budget"
    assert run(root, parts=make_parts(costing(0.1)), budget_usd=0.3, resume=True).passed == 3


def test_a_budget_needs_a_price(root: Path) -> None:
    """A run with a budget and an unknown price does not start. The error has the code and hint from the harness."""
    producer = FakeProducer(cost_fault=Problem("price-missing", "the price is unknown", hint="find it"))
    with pytest.raises(ConfigError, match="the price is unknown") as raised:
        run(root, parts=make_parts(producer), budget_usd=1)
    assert (raised.value.code, raised.value.hint, producer.views) == ("price-missing", "find it", [])
    assert not (root / "results").exists()


def test_the_harness_that_runs_knows_the_prices(root: Path) -> None:
    """The second harness, which a run makes for the copy of ``agent_dir``, gets the price table and runs the tasks."""
    table = root / "prices.yaml"
    table.write_text('date: "2026-11-23"\nmodels:\n  m: {input: 1, output: 2}\n')
    made: list[FakeProducer] = []

    def make(_: object) -> FakeProducer:
        made.append(FakeProducer())
        return made[-1]

    run(root, parts=make_parts(make_producer=make), price_table=table, limit=1)
    planned, working = made
    assert (len(planned.views), len(working.views)) == (0, 1)
    assert [found.models["m"].output for found in working.tables if found] == [2]


def test_a_price_table_must_be_valid(root: Path) -> None:
    """An invalid price table is refused before the run starts, even if the agent has no model."""
    table = root / "prices.yaml"
    table.write_text("models: {}\n")
    producer = FakeProducer()
    with pytest.raises(ConfigError, match="date"):
        run(root, parts=make_parts(producer), price_table=table)
    assert not producer.views
    assert not (root / "results").exists()
