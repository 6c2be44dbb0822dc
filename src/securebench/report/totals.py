"""Count the records of a run: outcomes, estimates, time and usage, as a whole and by group."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from securebench.results.recorded_task import answering_models
from securebench.results.records.record import Assurance, VerificationStatus
from securebench.results.records.usage import Usage
from securebench.results.statistics import Estimate, TaskResult, pass_at_1

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from securebench.results.recorded_task import RecordedTask

MAX_GROUPS: Final = 40
"""Maximum number of groups that are listed: a pack may give every task its own tag."""


@dataclass
class OutcomeGroup:
    """The outcomes of some trials: of a run, a family or a tag."""

    name: str
    outcomes: Counter[VerificationStatus] = field(default_factory=Counter)
    verdicts: dict[str, tuple[int, int]] = field(default_factory=dict)
    """For each task id: how many trials passed, and how many have a verdict."""
    seconds: list[float] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    """The sum of the reported usage of all attempts. The cost includes only trials whose cost is known."""

    def add(self, record: RecordedTask) -> None:
        """Count one record."""
        self.outcomes[record.status] += 1
        if record.passed is not None:
            passed, scored = self.verdicts.get(record.task_id, (0, 0))
            self.verdicts[record.task_id] = (passed + record.passed, scored + 1)
        if record.duration_seconds is not None:
            self.seconds.append(record.duration_seconds)
        if usage := record.spent or record.usage:
            self.usage += usage

    def merge(self, other: OutcomeGroup) -> None:
        """Add the counts of ``other``. The two groups must not share a task."""
        self.outcomes += other.outcomes
        self.verdicts |= other.verdicts
        self.seconds += other.seconds
        self.usage += other.usage

    @property
    def trials(self) -> int:
        """Trials with a record."""
        return self.outcomes.total()

    @property
    def passed(self) -> int:
        """Trials that passed."""
        return self.outcomes[VerificationStatus.PASSED]

    @property
    def failed(self) -> int:
        """Trials that failed."""
        return self.outcomes[VerificationStatus.FAILED]

    @property
    def errors(self) -> int:
        """Trials that ended in an infrastructure error."""
        return self.outcomes[VerificationStatus.ERROR]

    @property
    def pending(self) -> int:
        """Trials whose family has no verifier."""
        return self.outcomes[VerificationStatus.PENDING]

    @cached_property
    def estimate(self) -> Estimate | None:
        """The pass rate with its interval, once all records are counted; ``None`` without a verdict."""
        return pass_at_1(self.results)

    @property
    def results(self) -> list[TaskResult]:
        """For each task with a verdict, the number of trials that passed and the number that were scored."""
        return [TaskResult(passed, scored) for passed, scored in self.verdicts.values()]

    @cached_property
    def flaky(self) -> list[tuple[str, int, int]]:
        """Tasks of which some trials passed and others failed: id, passed, scored."""
        return [(name, passed, scored) for name, (passed, scored) in self.verdicts.items() if 0 < passed < scored]

    @property
    def tokens(self) -> tuple[int, int] | None:
        """Tokens in and out; ``None`` if no trial reported any usage, because unknown is not zero."""
        return (self.usage.input_tokens, self.usage.output_tokens) if self.usage else None

    @property
    def median_seconds(self) -> float | None:
        """The median duration of a trial in seconds; ``None`` if no duration is known."""
        return median(self.seconds) if self.seconds else None


@dataclass
class RunTotals:
    """Everything that a report counts about one run. The size of the totals does not depend on the records' sizes."""

    families: dict[str, OutcomeGroup] = field(default_factory=dict)
    tags: dict[str, OutcomeGroup] = field(default_factory=dict)
    reasons: Counter[tuple[VerificationStatus, str]] = field(default_factory=Counter)
    assurances: Counter[tuple[Assurance, bool]] = field(default_factory=Counter)
    """The number of verdicts, by assurance and by whether the verdict is a pass."""
    drivers: dict[str, tuple[dict[str, Any], int]] = field(default_factory=dict)
    """For each sandbox driver (name, runtime and version): its provenance, and the number of its trials."""
    models: Counter[str] = field(default_factory=Counter)
    """For each model that answered, according to the relay: the number of trials in which it did."""
    durations: list[tuple[VerificationStatus, float]] = field(default_factory=list)
    tokens: list[tuple[VerificationStatus, float]] = field(default_factory=list)
    ends: list[tuple[float, bool]] = field(default_factory=list)
    """For each verdict, its time (seconds since 1970), and whether it is a pass."""
    has_trials: bool = False
    """Whether a task has more than one trial."""
    last: datetime | None = None
    """When the last trial started."""

    def add(self, record: RecordedTask) -> None:
        """Count one record."""
        self.families.setdefault(record.family, OutcomeGroup(record.family)).add(record)
        for tag in dict.fromkeys(record.tags):
            self.tags.setdefault(tag, OutcomeGroup(tag)).add(record)
        if record.reason is not None:
            self.reasons[record.status, record.reason.value] += 1
        if record.assurance is not None:
            self.assurances[record.assurance, record.passed is True] += 1
        self.models.update(answering_models(record.provenance))
        self.has_trials = self.has_trials or record.trial > 1
        self._add_driver(record)
        self._add_time(record)

    @cached_property
    def total(self) -> OutcomeGroup:
        """The outcomes of the whole run, once all records are counted."""
        group = OutcomeGroup("all tasks")
        for family in self.families.values():
            group.merge(family)
        return group

    def tag_groups(self) -> Sequence[OutcomeGroup]:
        """Return the :data:`MAX_GROUPS` largest groups by tag, the largest first."""
        return _largest(self.tags.values())

    def family_groups(self) -> Sequence[OutcomeGroup]:
        """Return the :data:`MAX_GROUPS` largest groups by family, the largest first."""
        return _largest(self.families.values())

    def progress(self) -> list[tuple[float, bool]]:
        """Return :attr:`ends` in seconds since the estimated start of the first trial."""
        start = min((end for end, _ in self.ends), default=0.0)
        first = min((seconds for _, seconds in self.durations), default=0.0)
        return [(end - start + first, is_pass) for end, is_pass in self.ends]

    def _add_driver(self, record: RecordedTask) -> None:
        driver = record.provenance.get("driver")
        if not isinstance(driver, dict):
            return
        name = " ".join(str(driver.get(key, "")) for key in ("name", "runtime", "version"))
        known, number = self.drivers.get(name, (driver, 0))
        self.drivers[name] = (known, number + 1)

    def _add_time(self, record: RecordedTask) -> None:
        if usage := record.spent or record.usage:
            self.tokens.append((record.status, usage.input_tokens + usage.output_tokens))
        if record.duration_seconds is None:
            return
        self.durations.append((record.status, record.duration_seconds))
        if record.started_at is None:
            return
        self.last = max(self.last or record.started_at, record.started_at)
        if record.passed is not None:
            self.ends.append((record.started_at.timestamp() + record.duration_seconds, record.passed))


def _largest(groups: Iterable[OutcomeGroup]) -> Sequence[OutcomeGroup]:
    return sorted(groups, key=lambda group: (-group.trials, group.name))[:MAX_GROUPS]
