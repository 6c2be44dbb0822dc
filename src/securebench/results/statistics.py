"""Estimates from the verdicts of a run: pass rates with intervals, pass@k, and paired comparisons.

All intervals are 95 % confidence intervals. They treat the tasks as a random sample of the tasks that the benchmark
could contain. The trials of one task are not independent, so ten trials of a task do not simply count as ten tasks.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

CONFIDENCE: Final = 0.95
"""The confidence level of every interval."""

_Z: Final = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)

_RESAMPLES: Final = (1_000, 10_000)
"""Minimum and maximum number of bootstrap resamples."""

_DRAWS: Final = 10_000_000
"""The intended number of values in all resamples together. Drawing that many takes a second or two.

It determines the number of resamples, within the limits of :data:`_RESAMPLES`.
"""


@dataclass(frozen=True, slots=True)
class Interval:
    """A 95 % confidence interval, both ends included."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The verdicts of one task: ``passed`` of its ``scored`` trials. Trials without a verdict are not counted."""

    passed: int
    scored: int

    @property
    def rate(self) -> float:
        """The share of passed trials. ``scored`` must not be 0."""
        return self.passed / self.scored

    @property
    def is_flaky(self) -> bool:
        """Whether some trials passed and others failed."""
        return 0 < self.passed < self.scored


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over tasks, between 0 and 1, and the number of tasks it was computed from."""

    value: float
    interval: Interval
    tasks: int


def wilson(rate: float, size: float) -> Interval:
    """Return the Wilson score interval of a proportion ``rate`` observed in ``size`` independent trials.

    ``size`` need not be a whole number: see :func:`pass_at_1`. Source: E. B. Wilson, JASA 22 (1927), 209-212.
    """
    weight = _Z * _Z / size
    centre = (rate + weight / 2) / (1 + weight)
    half = _Z / (1 + weight) * math.sqrt(rate * (1 - rate) / size + weight / (4 * size))
    low = 0.0 if rate == 0 else max(0.0, centre - half)  # rounding must not exclude the observed rate
    return Interval(low, 1.0 if rate == 1 else min(1.0, centre + half))


def pass_at_1(results: Iterable[TaskResult]) -> Estimate | None:
    """Return the mean pass rate over tasks; ``None`` if no task has a verdict.

    The interval is Wilson's for an effective sample size: the number of independent trials whose pass rate would have
    the same variance as the mean of the tasks' pass rates. This size is at least the number of tasks and at most the
    number of trials. If all tasks have the same rate, the size is the number of tasks. With one trial per task, the
    interval is exactly Wilson's. Source: N. Dean and M. Pagano, Journal of Survey Statistics and Methodology 3 (2015),
    484-503.
    """
    scored = [result for result in results if result.scored]
    if not scored:
        return None
    tasks, trials = len(scored), sum(result.scored for result in scored)
    rate = math.fsum(result.rate for result in scored) / tasks
    squares = math.fsum((result.rate - rate) ** 2 for result in scored)
    size = float(tasks)
    if tasks > 1 and squares > 0:
        variance_of_mean = squares / (tasks - 1) / tasks
        size = min(max(rate * (1 - rate) / variance_of_mean, tasks), trials)
    return Estimate(rate, wilson(rate, size), tasks)


def pass_at_k(results: Iterable[TaskResult], k: int) -> Estimate | None:
    """Return the probability that at least one of ``k`` trials passes, averaged over tasks.

    The estimate is unbiased: it is the share of the ``k``-element subsets of a task's trials that contain a pass. Tasks
    with fewer than ``k`` verdicts are excluded; ``None`` if no task remains. Source: Chen et al., arXiv:2107.03374.
    """
    return _mean_over_tasks(results, k, lambda result: 1 - _share(result.scored - result.passed, result.scored, k))


def pass_hat_k(results: Iterable[TaskResult], k: int) -> Estimate | None:
    """Return the probability that all of ``k`` trials pass (pass^k), averaged over tasks.

    The estimate is unbiased. Tasks are excluded as in :func:`pass_at_k`. Source: Yao et al., arXiv:2406.12045.
    """
    return _mean_over_tasks(results, k, lambda result: _share(result.passed, result.scored, k))


def mcnemar_exact(only_a: int, only_b: int) -> float:
    """Return the two-sided p-value of McNemar's exact test.

    ``only_a`` and ``only_b`` are the numbers of tasks that only agent a, or only agent b, solved. Tasks with equal
    outcomes carry no information about the difference.
    """
    number = only_a + only_b
    term, tail = 1, 0
    for i in range(min(only_a, only_b) + 1):
        tail += term
        term = term * (number - i) // (i + 1)
    p_value: float = 2 * tail / 2**number
    return min(1.0, p_value)


def paired_interval(only_a: int, only_b: int, tasks: int) -> Interval:
    """Return the interval of the difference of two pass rates (a minus b) on the same ``tasks``.

    Each agent has one trial of each task. ``only_a`` and ``only_b`` are as in :func:`mcnemar_exact`.

    Source: D. G. Bonett and R. M. Price, Journal of Educational and Behavioral Statistics 37 (2012), 479-488.
    """
    share_a, share_b = (only_a + 1) / (tasks + 2), (only_b + 1) / (tasks + 2)
    difference = share_a - share_b
    half = _Z * math.sqrt((share_a + share_b - difference**2) / (tasks + 2))
    return Interval(max(-1.0, difference - half), min(1.0, difference + half))


def paired_bootstrap(differences: Sequence[float], seed: int = 0) -> tuple[Interval, float]:
    """Return the interval of the mean of ``differences``, and the two-sided p-value for a mean of 0.

    ``differences``: for each task, the pass rate of one agent minus that of the other. Whole tasks are resampled, so
    that trials of one task stay together. The ends of the interval are percentiles of the resampled means. The same
    ``differences`` and ``seed`` give the same result. With fewer than about 20 tasks the interval is too narrow.

    If ``n`` differences are not 0, the p-value is at least ``2 / 2**n``, the smallest value that an exact sign-flip
    test can give. With few tasks, all resamples may have the same sign. Without this minimum, the p-value would then be
    too small.

    Raises ``ValueError`` without differences.
    """
    if not differences:
        raise ValueError("no tasks to compare")
    size = len(differences)
    rounds = min(max(_DRAWS // size, _RESAMPLES[0]), _RESAMPLES[1])
    generator = random.Random(seed)  # noqa: S311 - a simulation, not a secret
    means = sorted(math.fsum(generator.choices(differences, k=size)) / size for _ in range(rounds))
    outside = int((1 - CONFIDENCE) / 2 * rounds)
    not_above = sum(mean <= 0 for mean in means)
    not_below = sum(mean >= 0 for mean in means)
    p_value = 2 * (min(not_above, not_below) + 1) / (rounds + 1)
    smallest = math.ldexp(2.0, -sum(difference != 0 for difference in differences))
    return Interval(means[outside], means[-1 - outside]), min(1.0, max(p_value, smallest))


def _mean_over_tasks(
    results: Iterable[TaskResult], k: int, estimator: Callable[[TaskResult], float]
) -> Estimate | None:
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    values = [estimator(result) for result in results if result.scored >= k]
    if not values:
        return None
    mean = min(1.0, max(0.0, math.fsum(values) / len(values)))
    # Wilson's interval assumes that each value is 0 or 1. Other values between 0 and 1 with the same mean vary less, so
    # the interval is not too narrow for them.
    return Estimate(mean, wilson(mean, len(values)), len(values))


def _share(part: int, whole: int, k: int) -> float:
    """Return the share of the subsets of ``k`` trials in which all trials are of a certain kind.

    ``part`` is the number of trials of that kind, ``whole`` the number of all trials.
    """
    return math.comb(part, k) / math.comb(whole, k)
