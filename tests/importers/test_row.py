"""Imported rows: their digests, their lines, and the selection of rows."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from securebench.errors import ConfigError, SourceLocation
from securebench.importers.row import ImportedRow, bad_record, canonical_json, rows_of, selected

PLACE = SourceLocation("source.jsonl", 3, 1)


def _row(name: str, record: object = "r") -> ImportedRow:
    return ImportedRow({"id": name, "input": {"question": "\u2028 or \n?"}}, str(record), PLACE)


ROWS = [_row(f"row/{number}") for number in range(5)]


def test_a_digest_is_of_the_record_alone() -> None:
    """The digest depends only on the content of the record, and not on the task, the place or the order of keys."""
    one = ImportedRow({"id": "a"}, {"x": 1, "y": [2]}, PLACE)
    other = ImportedRow({"id": "b", "input": {}}, {"y": [2], "x": 1}, SourceLocation("elsewhere"))
    assert one.digest == other.digest
    assert one.digest != ImportedRow({"id": "a"}, {"x": 1, "y": [3]}, PLACE).digest
    assert ImportedRow({"id": "a"}, ["q", "A"], PLACE).digest == (
        "3bbb7c28bc756552df2ff20af34a5d3f74dd0f7b8e8f66fd2640415c06f6d378"
    )


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5))
def test_canonical_json_is_one_ascii_line(value: object) -> None:
    """Canonical JSON is one line of ASCII that decodes to the same value."""
    text = canonical_json(value)  # type: ignore[arg-type] # hypothesis makes only JSON values here
    assert text.isascii()
    assert "\n" not in text
    assert json.loads(text) == value


def test_a_line_is_one_line() -> None:
    """The line of a row contains no line separator of any kind, even if its texts do."""
    assert len(ROWS[0].line.splitlines()) == 1
    assert json.loads(ROWS[0].line) == dict(ROWS[0].task)


@pytest.mark.parametrize(
    ("positions", "limit", "expected"),
    [
        (None, None, [0, 1, 2, 3, 4]),
        (None, 2, [0, 1]),
        (None, 9, [0, 1, 2, 3, 4]),
        ([3, 1], None, [3, 1]),
        ([4, 0, 2], 2, [4, 0]),
        ([], None, []),
    ],
)
def test_rows_are_chosen_by_position_and_number(
    positions: list[int] | None, limit: int | None, expected: list[int]
) -> None:
    """Rows are selected in the order of the positions, and then cut to the limit."""
    assert [row.id for row in selected(ROWS, positions, limit)] == [f"row/{number}" for number in expected]


def test_a_row_beyond_the_last_is_refused() -> None:
    """The error for a position beyond the last row says how many rows there are and which file they are counted in."""
    with pytest.raises(ConfigError, match="row 5 does not exist: found 5 rows, numbered from 0") as refused:
        selected(ROWS, [0, 5], None)
    assert "of the lock file or, without a lock file, of the source" in str(refused.value)


def test_problems_of_all_records_are_told_at_once() -> None:
    """All invalid records and duplicate ids are reported in one error, with their places."""

    def make(name: str) -> ImportedRow:
        if name.startswith("bad"):
            raise bad_record(PLACE, f"{name} is bad", "mend it")
        return _row(name)

    with pytest.raises(ConfigError) as caught:
        rows_of(["bad one", "a", "a", "bad two"], make)
    assert [problem.message for problem in caught.value.problems] == [
        "bad one is bad",
        "duplicate id a",
        "bad two is bad",
    ]
    assert {problem.code for problem in caught.value.problems} == {"import-row-invalid"}
    assert "source.jsonl:3:1" in str(caught.value)


def test_good_records_become_rows_in_order() -> None:
    """Rows are returned in the order of their records."""
    assert [row.id for row in rows_of(["b", "a"], _row)] == ["b", "a"]
