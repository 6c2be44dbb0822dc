"""How well a judge model agrees with known grades, as ``run.json`` records it."""

from __future__ import annotations

from typing import Any

import pytest

from securebench.results.run_directory.judge import JudgeAgreement, read_agreement


@pytest.mark.parametrize(
    ("counts", "agreement", "kappa"),
    [
        ((20, 5, 15, 10), 0.7, 0.4),  # the example of Wikipedia's article on Cohen's kappa
        ((5, 0, 5, 0), 1.0, 1.0),
        ((0, 5, 0, 5), 0.0, -1.0),
        ((5, 5, 0, 0), 0.5, 0.0),
        ((3, 0, 0, 0), 1.0, 1.0),
    ],
)
def test_kappa_is_that_of_cohen(counts: tuple[int, int, int, int], agreement: float, kappa: float) -> None:
    """Agreement and Cohen's kappa follow from the four counts, and are read back from JSON."""
    found = JudgeAgreement(*counts)
    assert found.agreement == pytest.approx(agreement)
    assert found.kappa == pytest.approx(kappa)
    assert read_agreement(found.to_json()) == found


def test_pairs_are_counted() -> None:
    """Pairs of a known grade and a verdict are counted by their four combinations."""
    pairs = [(True, True), *[(False, True)] * 2, *[(False, False)] * 3, *[(True, False)] * 4]
    expected = JudgeAgreement(true_pass=1, false_pass=2, true_fail=3, false_fail=4)
    assert JudgeAgreement.of(pairs) == expected


@pytest.mark.parametrize(
    "changes",
    [{"kappa": 0.9}, {"agreement": 1}, {"items": 51}, {"true_pass": True}, {"false_pass": -5}, {"extra": 1}],
)
def test_a_result_that_contradicts_itself_is_refused(changes: dict[str, Any]) -> None:
    """Contradictory values, invalid counts and unknown keys in a recorded agreement are refused."""
    with pytest.raises(ValueError, match="calibration"):
        read_agreement({**JudgeAgreement(20, 5, 15, 10).to_json(), **changes})
