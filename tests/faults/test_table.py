"""The page about faults has a table row for each fault point, and names only tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

from securebench.faults import FaultPoint

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "faults.md").read_text(encoding="utf-8")


def test_every_point_is_in_a_table() -> None:
    """Each point has a row, and no cell is empty or says FAILED. ``python -m scripts.faults`` writes the tables."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line[:3] == "| `"]
    points = {row[0].split("`")[1] for row in rows if len(row) == 4}
    assert points == set(FaultPoint)
    assert all(all(row) and "FAILED" not in "".join(row) for row in rows)


def test_the_tests_that_are_named_exist() -> None:
    """The page names test files for the faults that are not in its tables. All these files exist."""
    named = re.findall(r"`(tests/[\w/.]+)`", PAGE)
    assert len(named) >= 8
    assert [path for path in named if not (ROOT / path).is_file()] == []
