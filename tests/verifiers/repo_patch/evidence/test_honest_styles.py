"""With tests of every style, an honest solution passes and has the expected controls. A wrong solution fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from securebench.errors import FailureReason
from selected import variants
from verifiers.repo_patch.evidence.here import Here
from verifiers.repo_patch.evidence.styles import BROKEN, CORE, STYLES

if TYPE_CHECKING:
    from pathlib import Path


USUAL = {"assert", "values", "raises", "unittest", "helpers", "async", "nothing to invert", "not passing", "own lines"}
"""Styles that every test run judges. The others are variants of them and need ``--long``."""


@pytest.mark.parametrize("style", variants(STYLES, USUAL.__contains__))
def test_the_right_solution_passes_and_a_wrong_one_fails(style: str, tmp_path: Path) -> None:
    """The right solution passes. It has controls of the expected styles.

    All controls fail, except in the style "not passing". A wrong solution is judged in three styles, and fails.
    """
    tests, wanted = STYLES[style]
    files = {"calc/__init__.py": "", "tests/test_new.py": tests, "conftest.py": ""}
    right = Here({**files, "calc/core.py": CORE}).judge(tmp_path / "right")
    assert right.reason is None, (right.message, right.evidence, right.output.decode()[-3000:])
    assert 1 < right.evidence["controls_failed"] <= right.evidence["controls"]
    assert style == "not passing" or right.evidence["controls_failed"] == right.evidence["controls"]
    assert set(wanted) <= set(right.evidence["styles"]), right.evidence
    if style in ("assert", "unittest", "helpers"):
        wrong = Here({**files, "calc/core.py": BROKEN}).judge(tmp_path / "wrong")
        assert wrong.reason is FailureReason.TESTS_FAILED, wrong
