"""MMLU's records become rows, and an invalid record is reported with its place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from importers.records import CSV, gzipped, tar_of
from securebench.errors import ConfigError
from securebench.importers.mmlu import mmlu_document, mmlu_rows, subject_and_split

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.importers.row import ImportedRow

FILE = "algebra_test.csv"


def _rows(text: str) -> list[ImportedRow]:
    return mmlu_rows([("algebra", "source.csv", text.encode())], "test")


def _error(text: str | bytes) -> ConfigError:
    data = text if isinstance(text, bytes) else text.encode()
    with pytest.raises(ConfigError) as caught:
        mmlu_rows([("algebra", "source.csv", data)], "test")
    return caught.value


def test_a_record_becomes_a_row() -> None:
    """The question and choices are public, in their order; the letter is the answer."""
    first, second = _rows(CSV)
    assert dict(first.task) == {
        "id": "mmlu/algebra/test/0",
        "family": "multiple_choice",
        "input": {"question": "Is water wet?", "choices": ["yes", "no"]},
        "eval": {"answer": "B"},
        "metadata": {"benchmark": "mmlu"},
    }
    assert second.task["input"]["choices"] == ["1", "2", "0,1"]
    assert second.id == "mmlu/algebra/test/1"


def test_a_digest_is_of_the_fields_and_not_of_their_quotes() -> None:
    """Quotes and line ends of a CSV record do not change its digest; another answer does."""
    assert _rows('"a","b","c","A"\n')[0].digest == _rows("a,b,c,A\r\n")[0].digest
    assert _rows("a,b,c,A\n")[0].digest != _rows("a,b,c,B\n")[0].digest


def test_places_count_lines_and_not_records() -> None:
    """The place of a record is its first line: quoted line ends and blank lines count as lines."""
    rows = _rows('"two\nlines",a,b,A\n\nq,a,b,B\n')
    assert [(row.location.line, row.id) for row in rows] == [(1, "mmlu/algebra/test/0"), (4, "mmlu/algebra/test/1")]


def test_only_line_feeds_and_carriage_returns_end_lines() -> None:
    """A Unicode line separator in a field is kept, and does not end the record."""
    (row,) = _rows("one\u2028two\x85three,a,b,A\n")
    assert row.task["input"]["question"] == "one\u2028two\x85three"


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("q,a,b,A\nq,a,A\n", "3 fields, expected at least 4", "source.csv:2:1"),
        ("q,a,b,C\n", "must be the letter of a choice, A to B", "source.csv:1:1"),
        ("q,a,b,a\n", "must be the letter of a choice", "source.csv:1:1"),
        ("q,a,b,\n", "must be the letter of a choice", "source.csv:1:1"),
        ('q,a,b,A\n"q,a,b,A\n', "not valid CSV", "source.csv:2:1"),
        ('q,a,"b"x,A\n', "not valid CSV", "source.csv:1:1"),
        ("q," + "x" * 200_000 + ",b,A\n", "not valid CSV: field larger", "source.csv:1:1"),
    ],
)
def test_a_record_that_no_row_can_be_made_of_is_refused(text: str, message: str, place: str) -> None:
    """A record with too few fields, an invalid answer or broken quotes is refused with its line."""
    error = _error(text)
    assert message in str(error)
    assert place in str(error)
    assert error.code == "import-row-invalid"


def test_all_problems_are_told_at_once() -> None:
    """All invalid records are reported in one error."""
    assert len(_error("q,a,b,X\nq,a,b,A\nq\n").problems) == 2


@pytest.mark.parametrize(
    ("data", "place"), [(b"q,a,\xff,A\n", ":1:5"), (b"\xef\xbb\xbfq,a,b,A\n", ":1:1"), (b"q\0\n", ":1:2")]
)
def test_text_that_is_none_is_refused_with_its_place(data: bytes, place: str) -> None:
    """A byte order mark, a NUL byte, and bytes that are not UTF-8 are refused with their place."""
    error = _error(data)
    assert error.code == "file-encoding"
    assert f"source.csv{place}" in str(error)


def test_the_message_never_holds_the_answer() -> None:
    """The message for an invalid answer field does not quote the field, because it may contain the answer."""
    assert "canary" not in str(_error("q,a,b,canary\n"))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("/data/abstract_algebra_test.csv", ("abstract_algebra", "test")),
        ("http://host/dir/college_physics_dev.csv", ("college_physics", "dev")),
        ("physics_val.csv", ("physics", "val")),
        ("physics.csv", ("", "")),
        ("data.tar", ("", "")),
        ("/data/physics_test", ("", "")),
    ],
)
def test_a_file_name_says_subject_and_split(source: str, expected: tuple[str, str]) -> None:
    """Only a file name of the form `<subject>_<split>.csv` gives a subject and a split."""
    assert subject_and_split(source) == expected


@pytest.mark.parametrize("place", [FILE, f"test/{FILE}", f"data/test/{FILE}"])
def test_a_file_is_found_in_a_directory_of_the_authors_layout(tmp_path: Path, place: str) -> None:
    """The file may be in the directory itself, in `<split>/` or, as in the authors' archive, in `data/<split>/`."""
    path = tmp_path / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(CSV)
    assert mmlu_document(str(tmp_path), "algebra", "test") == (str(path), CSV.encode())


def test_a_directory_with_none_or_two_is_refused(tmp_path: Path) -> None:
    """A missing file is reported with the paths that were tried, and two matching files are an error."""
    with pytest.raises(ConfigError) as caught:
        mmlu_document(str(tmp_path), "algebra", "test")
    assert caught.value.code == "import-file-missing"
    assert str(tmp_path / "data" / "test" / FILE) in str(caught.value)
    (tmp_path / "test").mkdir()
    for place in (FILE, f"test/{FILE}"):
        (tmp_path / place).write_text(CSV)
    with pytest.raises(ConfigError) as caught:
        mmlu_document(str(tmp_path), "algebra", "test")
    assert caught.value.code == "import-file-ambiguous"


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_is_found_in_the_archive(tmp_path: Path, packed: bool) -> None:
    """The file is read from the authors' tar archive, gzipped or not."""
    archive = tar_of(tmp_path / "data.tar", {f"data/test/{FILE}": CSV.encode(), "data/README": b"x"}, packed=packed)
    assert mmlu_document(str(archive), "algebra", "test") == (f"{archive}!data/test/{FILE}", CSV.encode())


def test_a_csv_file_is_read_packed_or_not(tmp_path: Path) -> None:
    """The source may be the CSV file itself, gzipped or not."""
    for name, data in ((FILE, CSV.encode()), (f"{FILE}.gz", gzipped(CSV.encode()))):
        (tmp_path / name).write_bytes(data)
        assert mmlu_document(str(tmp_path / name), "algebra", "test") == (str(tmp_path / name), CSV.encode())


@given(st.binary(max_size=300))
def test_no_bytes_raise_anything_but_a_configuration_error(data: bytes) -> None:
    """Random bytes give rows or a ``ConfigError``, and never another exception."""
    try:
        rows = mmlu_rows([("algebra", "source.csv", data)], "test")
    except ConfigError:
        return
    assert all(row.task["eval"]["answer"].isalpha() for row in rows)
