"""A lock lists rows with the digests of their records. An imported row whose digest differs is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from securebench.errors import ConfigError, SourceLocation
from securebench.importers.lock import Lock, load_lock, lock_text
from securebench.importers.row import ImportedRow

if TYPE_CHECKING:
    from pathlib import Path

DIGEST = "0" * 64


def _row(name: str, record: str = "as published") -> ImportedRow:
    return ImportedRow({"id": name}, record, SourceLocation("source.csv", 7, 1))


ROWS = [_row("demo/0"), _row("demo/1"), _row("demo/2")]


def _written(path: Path, rows: list[ImportedRow]) -> Path:
    path.write_text(lock_text("demo", rows), encoding="utf-8")
    return path


def test_a_lock_that_was_written_is_read_back(tmp_path: Path) -> None:
    """A lock that is written and read again has the same ids and the same digest of each record."""
    lock = load_lock(_written(tmp_path / "lock.json", ROWS[:2]), "demo")
    assert dict(lock.rows) == {"demo/0": ROWS[0].digest, "demo/1": ROWS[1].digest}


def test_the_rows_of_a_lock_are_taken_in_its_order(tmp_path: Path) -> None:
    """Rows are returned in the order of the lock, and rows that are not in the lock are left out."""
    lock = load_lock(_written(tmp_path / "lock.json", [ROWS[2], ROWS[0]]), "demo")
    assert [row.id for row in lock.rows_in(ROWS)] == ["demo/2", "demo/0"]


def test_a_row_that_differs_is_named_with_its_place(tmp_path: Path) -> None:
    """Each row whose record differs from the lock is reported with its id, its place and both digests."""
    lock = load_lock(_written(tmp_path / "lock.json", ROWS), "demo")
    with pytest.raises(ConfigError) as caught:
        lock.rows_in([_row("demo/0", "changed"), ROWS[1], _row("demo/2", "changed too")])
    assert [problem.code for problem in caught.value.problems] == ["import-lock-mismatch"] * 2
    assert "demo/0 has digest" in str(caught.value)
    assert "source.csv:7:1" in str(caught.value)
    assert ROWS[0].digest in str(caught.value)
    assert "demo/2 has digest" in str(caught.value)


def test_a_row_that_the_source_lacks_is_named(tmp_path: Path) -> None:
    """A row of the lock that the source does not contain is an error with the row's id and the lock's path."""
    path = _written(tmp_path / "lock.json", ROWS)
    with pytest.raises(ConfigError, match="demo/1 is in the lock but not in the source") as caught:
        load_lock(path, "demo").rows_in([ROWS[0], ROWS[2]])
    assert str(path) in str(caught.value)


def test_a_row_that_the_lock_does_not_hold_is_refused() -> None:
    """Checking a row that is not in the lock is an error."""
    with pytest.raises(ConfigError, match="the lock has no row with this id"):
        Lock("demo", {"demo/0": ROWS[0].digest}).check(ROWS[:2])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("not json", "invalid lock file"),
        ('{"benchmark": "demo"}', "expected an object"),
        ("[]", "expected an object"),
        (json.dumps({"benchmark": "other", "rows": {"a": DIGEST}}), "for benchmark 'other', expected 'demo'"),
        (json.dumps({"benchmark": "demo", "rows": {}}), "'rows' must be a non-empty object"),
        (json.dumps({"benchmark": "demo", "rows": []}), "'rows' must be a non-empty object"),
        (json.dumps({"benchmark": "demo", "rows": {"a": "123"}}), "the digest of 'a'"),
        (json.dumps({"benchmark": "demo", "rows": {"a": ""}}), "the digest of 'a'"),
        (json.dumps({"benchmark": "demo", "rows": {"a": DIGEST}, "more": 1}), "expected an object"),
        ('{"benchmark": "demo", "rows": {"a": "' + DIGEST + '", "a": "' + DIGEST + '"}}', "invalid lock file"),
    ],
)
def test_a_lock_that_is_none_is_refused(tmp_path: Path, content: str, message: str) -> None:
    """A lock is refused if it is malformed, is for another benchmark, or has no rows."""
    path = tmp_path / "lock.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match=message) as caught:
        load_lock(path, "demo")
    assert caught.value.code == "import-lock-invalid"
    assert str(path) in str(caught.value)


def test_a_lock_that_is_missing_is_an_error(tmp_path: Path) -> None:
    """A missing lock file is an error: it does not mean that all rows are accepted."""
    with pytest.raises(ConfigError) as caught:
        load_lock(tmp_path / "lock.json", "demo")
    assert caught.value.code == "file-missing"


def test_a_row_that_the_lock_names_without_a_digest_needs_trust(tmp_path: Path) -> None:
    """A row without a digest in the lock is accepted only with ``trust_new``. Other rows are still checked."""
    path = tmp_path / "lock.json"
    path.write_text(json.dumps({"benchmark": "demo", "rows": {"demo/0": None, "demo/1": DIGEST}}), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_lock(path, "demo").check(ROWS[:1])
    assert caught.value.code == "import-lock-unpinned"
    assert ROWS[0].digest in str(caught.value)
    trusting = load_lock(path, "demo", trust_new=True)
    assert trusting.checked(ROWS[:1]) == ROWS[:1]
    with pytest.raises(ConfigError, match="the lock expects"):
        trusting.check(ROWS[:2])
