"""Estimates, compared with scipy, with enumeration, and with simulations whose true value is known."""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from securebench.results.statistics import (
    TaskResult,
    mcnemar_exact,
    paired_bootstrap,
    paired_interval,
    pass_at_1,
    pass_at_k,
    pass_hat_k,
    wilson,
)

_RESULTS = st.integers(1, 6).flatmap(lambda n: st.builds(TaskResult, st.integers(0, n), st.just(n)))


@pytest.mark.parametrize(
    ("passed", "scored"), [(0, 1), (1, 1), (8, 10), (0, 164), (163, 164), (164, 164), (3_500, 9_999)]
)
def test_wilson_equals_scipy(passed: int, scored: int, stats: Any) -> None:
    """The ends of Wilson's interval equal those that scipy computes."""
    found = wilson(passed / scored, scored)
    expected = stats.binomtest(passed, scored).proportion_ci(0.95, method="wilson")
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-12)


@pytest.mark.parametrize(("passed", "failed"), [(0, 7), (7, 0), (12, 5), (1, 0)])
def test_one_trial_per_task_gives_wilson(passed: int, failed: int, stats: Any) -> None:
    """With one trial per task, the interval of pass@1 is Wilson's."""
    estimate = pass_at_1([TaskResult(1, 1)] * passed + [TaskResult(0, 1)] * failed)
    expected = stats.binomtest(passed, passed + failed).proportion_ci(0.95, method="wilson")
    assert estimate is not None
    assert estimate.value == passed / (passed + failed)
    assert (estimate.interval.low, estimate.interval.high) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_a_run_without_verdicts_has_no_estimate() -> None:
    """Without enough verdicts there is no estimate."""
    nothing = [TaskResult(0, 0)] * 3
    assert pass_at_1(nothing) is None
    assert pass_at_k(nothing, 1) is None
    assert pass_hat_k([TaskResult(1, 1)], 2) is None


def test_trials_without_verdict_do_not_count() -> None:
    """Each task has the same weight, and a task without a verdict is left out."""
    estimate = pass_at_1([TaskResult(1, 1), TaskResult(0, 0), TaskResult(0, 3)])
    assert estimate is not None
    assert (estimate.value, estimate.tasks) == (0.5, 2)


def test_equal_trials_add_no_information() -> None:
    """If all trials of each task have the same verdict, further trials do not narrow the interval."""
    repeated = pass_at_1([TaskResult(5, 5)] * 12 + [TaskResult(0, 5)] * 8)
    once = pass_at_1([TaskResult(1, 1)] * 12 + [TaskResult(0, 1)] * 8)
    assert repeated is not None
    assert once is not None
    assert repeated.interval == once.interval


def test_the_cluster_variance_decides_the_width() -> None:
    """The effective size follows from the cluster-robust variance of a mean, computed here with numpy."""
    results = [TaskResult(passed, 4) for passed in (0, 1, 1, 2, 2, 2, 3, 3, 4, 4, 2, 1)]
    rates = np.array([result.passed / result.scored for result in results])
    variance = rates.var(ddof=1) / len(rates)
    size = rates.mean() * (1 - rates.mean()) / variance
    assert len(results) < size < 4 * len(results)
    # scipy's Wilson interval only accepts whole numbers: find the ends as the roots of the score equation.
    roots = np.roots([1 + 3.841458820694124 / size, -2 * rates.mean() - 3.841458820694124 / size, rates.mean() ** 2])
    estimate = pass_at_1(results)
    assert estimate is not None
    assert (estimate.interval.low, estimate.interval.high) == pytest.approx(sorted(roots), abs=1e-9)


def test_the_interval_covers_the_true_rate_with_dependent_trials() -> None:
    """For three trials each of easy and hard tasks, about 95 % of the intervals contain the true mean."""
    generator = random.Random(11)
    covered, naive = 0, 0
    for _ in range(1_000):
        difficulties = [generator.betavariate(0.5, 0.3) for _ in range(60)]
        results = [TaskResult(sum(generator.random() < p for _ in range(3)), 3) for p in difficulties]
        estimate = pass_at_1(results)
        assert estimate is not None
        covered += estimate.interval.low <= 0.625 <= estimate.interval.high
        pooled = wilson(estimate.value, 180)
        naive += pooled.low <= 0.625 <= pooled.high
    assert 0.93 <= covered / 1_000 <= 0.985
    assert naive / 1_000 < 0.85, "counting trials as tasks would be wrong here, so the test could not fail"


@given(st.lists(_RESULTS, min_size=1, max_size=30))
def test_an_interval_contains_its_estimate(results: list[TaskResult]) -> None:
    """An interval lies between 0 and 1 and contains its estimate."""
    for estimate in (pass_at_1(results), pass_at_k(results, 2), pass_hat_k(results, 2)):
        if estimate is not None:
            assert 0 <= estimate.interval.low <= estimate.value <= estimate.interval.high <= 1


@pytest.mark.parametrize(("passed", "scored", "k"), [(0, 5, 2), (1, 5, 2), (3, 5, 3), (5, 5, 5), (2, 10, 4), (1, 1, 1)])
def test_pass_at_k_counts_subsets(passed: int, scored: int, k: int) -> None:
    """Each of pass@k and pass^k equals a share of the subsets of ``k`` trials.

    For pass@k, at least one trial of the subset passed. For pass^k, all its trials passed.
    """
    trials = [True] * passed + [False] * (scored - passed)
    subsets = list(itertools.combinations(trials, k))
    at_k, hat_k = pass_at_k([TaskResult(passed, scored)], k), pass_hat_k([TaskResult(passed, scored)], k)
    assert at_k is not None
    assert hat_k is not None
    assert at_k.value == pytest.approx(sum(map(any, subsets)) / len(subsets))
    assert hat_k.value == pytest.approx(sum(map(all, subsets)) / len(subsets))


def test_k_must_be_positive() -> None:
    """A ``k`` below 1 is an error."""
    with pytest.raises(ValueError, match="at least 1"):
        pass_at_k([TaskResult(1, 1)], 0)


@pytest.mark.parametrize(("only_a", "only_b"), [(0, 0), (8, 0), (3, 3), (1, 9), (12, 30), (700, 650)])
def test_mcnemar_equals_scipys_binomial_test(only_a: int, only_b: int, stats: Any) -> None:
    """The p-value of McNemar's test equals that of scipy's exact binomial test."""
    expected = stats.binomtest(only_a, only_a + only_b).pvalue if only_a + only_b else 1.0
    assert mcnemar_exact(only_a, only_b) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("a", "b"), [("0.1", "0.1"), ("0.3", "0.05"), ("0.02", "0.02"), ("0.45", "0.4")])
def test_the_paired_interval_covers_the_true_difference(a: str, b: str) -> None:
    """The interval contains the true difference with a probability between 94 % and 99.9 %.

    The test computes this probability exactly, as a sum over all outcomes.
    """
    share_a, share_b, tasks = Fraction(a), Fraction(b), 40
    covered = 0.0
    for only_a in range(tasks + 1):
        for only_b in range(tasks + 1 - only_a):
            interval = paired_interval(only_a, only_b, tasks)
            if interval.low <= share_a - share_b <= interval.high:
                rest = tasks - only_a - only_b
                ways = math.comb(tasks, only_a) * math.comb(tasks - only_a, only_b)
                covered += float(ways * share_a**only_a * share_b**only_b * (1 - share_a - share_b) ** rest)
    assert 0.94 <= covered <= 0.999


def test_the_bootstrap_agrees_with_scipys(stats: Any) -> None:
    """The ends of the interval equal those of scipy's percentile bootstrap, up to simulation noise."""
    differences = [1.0] * 30 + [0.0] * 50 + [-1 / 3] * 20 + [1 / 3] * 25
    interval, p_value = paired_bootstrap(differences)
    expected = stats.bootstrap((differences,), np.mean, method="percentile", rng=np.random.default_rng(3))
    assert interval.low == pytest.approx(expected.confidence_interval.low, abs=0.01)
    assert interval.high == pytest.approx(expected.confidence_interval.high, abs=0.01)
    assert p_value < 0.001


def test_the_bootstrap_sees_no_difference_where_there_is_none() -> None:
    """Equal agents give an interval around 0 and a large p-value."""
    interval, p_value = paired_bootstrap([1.0] * 20 + [-1.0] * 20)
    assert interval.low < 0 < interval.high
    assert p_value > 0.8
    assert paired_bootstrap([0.0] * 10)[1] == 1.0


@pytest.mark.parametrize("differences", [[1.0, 0.5], [0.5] * 4 + [0.0] * 5, [-1.0] * 8])
def test_a_few_tasks_are_not_significant(differences: list[float], stats: Any) -> None:
    """If no two differences have opposite signs, the p-value equals that of scipy's exact permutation test."""
    zeros = [0.0] * len(differences)
    signs = stats.permutation_test(
        (differences, zeros), lambda a, b: np.mean(a - b), permutation_type="samples", vectorized=False
    )
    assert paired_bootstrap(differences)[1] == pytest.approx(min(1.0, signs.pvalue))
    assert paired_bootstrap(differences[:1])[1] == 1.0


def test_the_bootstrap_is_reproducible_and_refuses_an_empty_comparison() -> None:
    """The same seed gives the same result, another seed another one, and an empty comparison is an error."""
    assert paired_bootstrap([0.5, -0.5, 0.25], seed=4) == paired_bootstrap([0.5, -0.5, 0.25], seed=4)
    assert paired_bootstrap([0.5, -0.5, 0.25], seed=4) != paired_bootstrap([0.5, -0.5, 0.25], seed=5)
    with pytest.raises(ValueError, match="no tasks"):
        paired_bootstrap([])
