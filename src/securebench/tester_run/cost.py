"""What a run costs at its model provider, and whether its budget is used up."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from securebench.money import in_usd, micro_usd
from securebench.results.egress_log import logged_cost
from securebench.results.usage import Usage, read_usage

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.results.journal import Journal
    from securebench.results.record import TaskRecord
    from securebench.results.run_header import RunHeader


class RunCost:
    """The cost of a run so far: of all attempts at its trials, with the judge's, and of its provider checks.

    If the run has a budget, what interrupted tasks in its ``directory`` cost counts, too, and what answers whose end is
    not known may have cost.
    Thread safe.
    """

    def __init__(self, journal: Journal, header: RunHeader, directory: Path) -> None:
        recorded = [*journal.entries.values(), *journal.set_aside()]
        checks = [usage for check in header.provider_checks if (usage := read_usage(check))]
        self._budget = None if header.budget_usd is None else micro_usd(header.budget_usd)
        self._costs = {entry.id: self._cost(entry.usage) + self._cost(entry.judge_usage) for entry in recorded}
        self._total = sum(self._costs.values()) + sum(map(self._cost, checks))
        if self._budget is not None:  # a task that was interrupted has no record, but its requests were logged
            self._total = max(self._total, logged_cost(directory))
        self._is_known = self._budget is not None or bool(self._total)
        self._lock = threading.Lock()

    def add(self, record: TaskRecord) -> None:
        """Count a new record, whose usage includes that of earlier attempts."""
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
        """Return a cost in micro-dollars. A budget is also charged what answers may have cost at most."""
        if usage is None:
            return 0
        return micro_usd((usage.cost_usd or 0.0) + (0.0 if self._budget is None else usage.unreported_usd))
