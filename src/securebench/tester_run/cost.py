"""What a run costs at its model provider, and whether its budget is used up."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Self

from securebench.money import in_usd, micro_usd
from securebench.results.records.usage import Usage, read_usage
from securebench.results.run_directory.egress_log import logged_cost

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.results.records.record import TaskRecord
    from securebench.results.run_directory.header import RunHeader
    from securebench.results.run_directory.journal import Journal
    from securebench.trials import TrialId


class RunCost:
    """The cost of a run so far: what its agents and its judge model used, and what the checks of providers used.

    If the run has a budget, the cost of interrupted tasks is taken from the egress log, and an answer of unknown cost
    is assumed to have the highest possible cost. Thread safe.
    """

    def __init__(self, budget_usd: float | None) -> None:
        """Begin with a cost of zero, as a new run does."""
        self._budget = None if budget_usd is None else micro_usd(budget_usd)
        self._costs: dict[TrialId, int] = {}
        self._total = 0
        self._is_known = self._budget is not None
        self._lock = threading.Lock()

    @classmethod
    def of(cls, journal: Journal, header: RunHeader, directory: Path) -> Self:
        """Return the cost so far of the run in ``directory``."""
        cost = cls(header.budget_usd)
        for entry in (*journal.entries.values(), *journal.set_aside()):
            cost._costs[entry.id] = cost._cost(entry.usage) + cost._cost(entry.judge_usage)
        cost._total = sum(cost._costs.values())
        for check in header.provider_checks:
            cost.add_check(read_usage(check))
        if cost._budget is not None:  # a task that was interrupted has no record, but its requests were logged
            cost._total = max(cost._total, logged_cost(directory))
        cost._is_known = cost._is_known or bool(cost._total)
        return cost

    def add_check(self, usage: Usage | None) -> None:
        """Add the usage of a check of the provider or the judge, or of a part of such a check."""
        with self._lock:
            self._total += self._cost(usage)
            self._is_known = self._is_known or bool(self._total)

    def add(self, record: TaskRecord) -> None:
        """Add the cost of a new record.

        The record's usage includes the usage of earlier attempts, so its cost replaces the cost of these attempts.
        """
        usage = read_usage(record.provenance.get("spent") or record.provenance.get("usage")) or Usage()
        usage += read_usage(record.provenance.get("judge_usage")) or Usage()
        with self._lock:
            self._total += self._cost(usage) - self._costs.get(record.id, 0)
            self._costs[record.id] = self._cost(usage)
            self._is_known = self._is_known or usage.cost_usd is not None

    @property
    def usd(self) -> float | None:
        """The cost in US dollars; ``None`` if it is not known."""
        return in_usd(self._total) if self._is_known else None

    @property
    def is_budget_used_up(self) -> bool:
        """Whether the run has a budget and has reached it."""
        return self._budget is not None and self._total >= self._budget

    def _cost(self, usage: Usage | None) -> int:
        """Return the cost of ``usage`` in micro-dollars; 0 if there is none.

        If the run has a budget, an answer of unknown cost is assumed to have the highest possible cost.
        """
        if usage is None:
            return 0
        return micro_usd((usage.cost_usd or 0.0) + (0.0 if self._budget is None else usage.unreported_usd))
