"""The summary of a run. Its results are counted only from the records of the run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from securebench.results.records.record import Assurance, VerificationStatus
from securebench.results.records.usage import Usage
from securebench.results.statistics import Estimate, TaskResult, pass_at_1, pass_at_k, pass_hat_k

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from securebench.resources import JsonValue
    from securebench.results.records.record import RecordEntry
    from securebench.results.run_directory.judge import JudgeSummary
    from securebench.results.run_directory.part_of_pack import PartOfPack

SHOWN_FAILURES: Final = 20
"""Maximum number of trials with a failure or an error that a summary lists. The records contain all of them."""

SHOWN_FLAKY: Final = 10
"""Maximum number of flaky tasks that a summary lists."""


class RunStatus(StrEnum):
    """Whether all, some or none of the planned trials have a verdict."""

    COMPLETE = "complete"
    PARTIAL = "partial"
    PENDING = "pending"


class RunEnd(StrEnum):
    """How a run ended."""

    RUNNING = "running"
    """The run has not ended yet."""
    FINISHED = "finished"
    INTERRUPTED = "interrupted"
    STOPPED = "stopped"
    """The run could not continue, for example because the engine became unavailable."""
    OUT_OF_BUDGET = "out_of_budget"
    """The run reached its budget before all tasks had run."""


@dataclass(frozen=True, slots=True)
class Counts:
    """The number of ``tasks``, the number of ``trials`` of each, and the number of all trials by outcome.

    ``not_run`` counts trials without a record.
    """

    tasks: int = 0
    passed: int = 0
    failed: int = 0
    errors: int = 0
    pending: int = 0
    passed_by_assurance: Mapping[Assurance, int] = field(default_factory=dict)
    """The passed trials by the assurance of their verdicts, without zeros."""
    trials: int = 1

    @property
    def planned(self) -> int:
        """The number of planned trials of all tasks."""
        return self.tasks * self.trials

    @property
    def scored(self) -> int:
        """The denominator of the pass rate: trials with a verdict."""
        return self.passed + self.failed

    @property
    def not_run(self) -> int:
        """Planned trials without a record."""
        return self.planned - self.scored - self.errors - self.pending

    @property
    def pass_rate(self) -> float | None:
        """Passed / scored, between 0 and 1; ``None`` if nothing is scored. Errors and pending tasks are excluded."""
        return self.passed / self.scored if self.scored else None

    @property
    def verification_status(self) -> RunStatus:
        """Whether all, some or none of the planned trials have a verdict."""
        if self.scored == self.planned:
            return RunStatus.COMPLETE
        return RunStatus.PARTIAL if self.scored else RunStatus.PENDING

    def to_json(self) -> dict[str, JsonValue]:
        """Return the counts as JSON."""
        return {
            "tasks": self.tasks,
            "trials": self.trials,
            "passed": self.passed,
            "failed": self.failed,
            "errors": self.errors,
            "pending": self.pending,
            "not_run": self.not_run,
            "scored": self.scored,
            "pass_rate": self.pass_rate,
            "passed_by_assurance": {name.value: number for name, number in self.passed_by_assurance.items()},
        }


@dataclass(frozen=True, slots=True)
class RunEstimates:
    """What the verdicts of a run say about the agent. ``k`` is the number of planned trials of each task.

    ``pass_at_k`` and ``pass_hat_k`` are ``None`` if ``k`` is 1, or if no task has ``k`` verdicts. A task is flaky if
    some of its trials passed and others failed. ``flaky_tasks`` is the number of flaky tasks, and ``flaky`` has the ids
    of the first :data:`SHOWN_FLAKY`.
    """

    k: int
    pass_at_1: Estimate
    pass_at_k: Estimate | None = None
    pass_hat_k: Estimate | None = None
    flaky: tuple[str, ...] = ()
    flaky_tasks: int = 0

    def to_json(self) -> dict[str, JsonValue]:
        """Return the estimates as JSON. Intervals are lists of their two ends."""
        return {
            "k": self.k,
            "pass_at_1": _estimate(self.pass_at_1),
            "pass_at_k": _estimate(self.pass_at_k),
            "pass_hat_k": _estimate(self.pass_hat_k),
            "flaky_tasks": self.flaky_tasks,
            "flaky": [*self.flaky],
        }


def estimate(results: Mapping[str, TaskResult], trials: int) -> RunEstimates | None:
    """Return the estimates from the verdicts of each task, or ``None`` if there is no verdict.

    ``trials`` is the number of planned trials of a task.
    """
    rate = pass_at_1(results.values())
    if rate is None:
        return None
    if trials == 1:
        return RunEstimates(1, rate)
    flaky = [name for name, result in results.items() if result.is_flaky]
    any_pass, all_pass = pass_at_k(results.values(), trials), pass_hat_k(results.values(), trials)
    return RunEstimates(trials, rate, any_pass, all_pass, tuple(flaky[:SHOWN_FLAKY]), len(flaky))


def _estimate(value: Estimate | None) -> JsonValue:
    if value is None:
        return None
    return {"value": value.value, "interval": [value.interval.low, value.interval.high], "tasks": value.tasks}


@dataclass(frozen=True, slots=True, kw_only=True)
class TesterRunSummary:
    """The result of a run. ``failures`` has the first :data:`SHOWN_FAILURES` trials that failed or had an error."""

    __test__: ClassVar[bool] = False  # pytest would collect a class named Test...

    run_id: str
    benchmark_id: str
    agent: str
    """The agent's label: ``harness.name``, or else the type of its harness."""
    output_dir: Path
    total: Counts
    families: Mapping[str, Counts]
    failures: tuple[RecordEntry, ...] = ()
    usage: Usage = field(default_factory=Usage)
    """The reported model usage of the agents in all recorded attempts, and of the checks of the agents' provider."""
    budget_usd: float | None = None
    """The budget of the run in US dollars."""
    part: PartOfPack | None = None
    """The selected part of the pack, if it is not the whole."""
    estimates: RunEstimates | None = None
    """Pass rates with their intervals; ``None`` without a verdict."""
    judge: JudgeSummary | None = None
    """The judge model, if the run has one."""
    ending: RunEnd = RunEnd.FINISHED
    problems: tuple[str, ...] = field(default=())
    """Problems of the run as a whole, and how to fix them."""

    @property
    def cost_usd(self) -> float | None:
        """The cost of the agents and the judge model in US dollars.

        It is ``None`` if no usage was reported, or if the agents or the judge model were used at an unknown cost.
        """
        used = [usage for usage in (self.usage, self.judge.usage if self.judge else Usage()) if usage]
        return None if any(usage.cost_usd is None for usage in used) else sum(used, Usage()).cost_usd

    @property
    def verification_status(self) -> RunStatus:
        """``complete``, ``partial`` or ``pending``, for all planned trials together."""
        return self.total.verification_status

    @property
    def tasks(self) -> int:
        """The number of planned tasks. All other counts are numbers of trials."""
        return self.total.tasks

    @property
    def passed(self) -> int:
        """Trials that passed."""
        return self.total.passed

    @property
    def failed(self) -> int:
        """Trials that failed."""
        return self.total.failed

    @property
    def errors(self) -> int:
        """Trials that ended in an infrastructure error."""
        return self.total.errors

    @property
    def pending(self) -> int:
        """Trials whose family has no verifier."""
        return self.total.pending

    @property
    def pass_rate(self) -> float | None:
        """Passed / scored; ``None`` if nothing is scored."""
        return self.total.pass_rate

    def to_json(self) -> dict[str, JsonValue]:
        """Return the summary as JSON, for ``--json``."""
        return {
            "run_id": self.run_id,
            "benchmark_id": self.benchmark_id,
            "agent": self.agent,
            "output_dir": str(self.output_dir),
            "ending": self.ending.value,
            "verification_status": self.verification_status.value,
            "part_of_pack": self.part.to_json() if self.part else None,
            **self.total.to_json(),
            "estimates": self.estimates.to_json() if self.estimates else None,
            "families": {name: counts.to_json() for name, counts in self.families.items()},
            **({"usage": self.usage.to_json()} if self.usage else {}),
            "cost_usd": self.cost_usd,
            "budget_usd": self.budget_usd,
            **({"judge": self.judge.to_json()} if self.judge else {}),
            "problems": list(self.problems),
        }


class Counted(NamedTuple):
    """The totals of some records: counts by family (sorted by name), the reported usage, and the verdicts by task.

    ``failures`` has the first :data:`SHOWN_FAILURES` trials that failed or had an error.
    """

    families: dict[str, Counts]
    failures: tuple[RecordEntry, ...]
    usage: Usage
    results: dict[str, TaskResult]
    """The verdicts of each task that has any."""
    judge_usage: Usage = Usage()


def count(
    planned: Mapping[str, str],
    entries: Iterable[RecordEntry],
    trials: int = 1,
    sizes: Mapping[str, int] = MappingProxyType({}),
) -> Counted:
    """Count records. ``planned`` maps task ids to families. ``trials`` is the number of trials of each task.

    If the ids of planned tasks are unknown, ``sizes`` has their number by family. If the records contain more tasks of
    a family than ``sizes`` says, the larger number is used.
    """
    tasks = dict(planned)
    verdicts: dict[str, list[bool]] = {}
    seen: Counter[tuple[str, VerificationStatus]] = Counter()
    rests_on: dict[str, Counter[Assurance]] = {}
    failures: list[RecordEntry] = []
    usage = judge_usage = Usage()
    for entry in entries:
        tasks[entry.task_id] = entry.task_type
        seen[entry.task_type, entry.status] += 1
        if entry.status in {VerificationStatus.PASSED, VerificationStatus.FAILED}:
            verdicts.setdefault(entry.task_id, []).append(entry.status is VerificationStatus.PASSED)
        if entry.status is VerificationStatus.PASSED and entry.assurance is not None:
            rests_on.setdefault(entry.task_type, Counter())[entry.assurance] += 1
        if entry.status in {VerificationStatus.FAILED, VerificationStatus.ERROR} and len(failures) < SHOWN_FAILURES:
            failures.append(entry)
        if entry.usage:
            usage += entry.usage
        if entry.judge_usage:
            judge_usage += entry.judge_usage
    all_sizes = Counter(tasks.values()) | Counter(sizes)  # the larger number of each family
    families = {
        family: replace(_counts(size, family, seen, rests_on.get(family, Counter())), trials=trials)
        for family, size in sorted(all_sizes.items())
    }
    results = {name: TaskResult(sum(passes), len(passes)) for name, passes in verdicts.items()}
    return Counted(families, tuple(failures), usage, results, judge_usage)


def total(families: Iterable[Counts]) -> Counts:
    """Return the sum of ``families``."""
    parts = list(families)
    return Counts(
        tasks=sum(part.tasks for part in parts),
        trials=max((part.trials for part in parts), default=1),
        passed=sum(part.passed for part in parts),
        failed=sum(part.failed for part in parts),
        errors=sum(part.errors for part in parts),
        pending=sum(part.pending for part in parts),
        passed_by_assurance=_in_order(sum((Counter(part.passed_by_assurance) for part in parts), Counter())),
    )


def _in_order(passes: Counter[Assurance]) -> dict[Assurance, int]:
    return {assurance: passes[assurance] for assurance in Assurance if passes[assurance]}


def _counts(
    tasks: int, family: str, seen: Counter[tuple[str, VerificationStatus]], passes: Counter[Assurance]
) -> Counts:
    return Counts(
        tasks=tasks,
        passed=seen[family, VerificationStatus.PASSED],
        failed=seen[family, VerificationStatus.FAILED],
        errors=seen[family, VerificationStatus.ERROR],
        pending=seen[family, VerificationStatus.PENDING],
        passed_by_assurance=_in_order(passes),
    )
