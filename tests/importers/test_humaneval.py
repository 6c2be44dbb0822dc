"""HumanEval's records become rows, and an invalid record is reported with its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from importers.records import lines, record
from securebench.errors import ConfigError
from securebench.importers.humaneval import MANIFEST, humaneval_rows


def _task(**changes: Any) -> dict[str, Any]:
    (row,) = humaneval_rows(lines(record(**changes)), "source.jsonl")
    return dict(row.task)


def _error(data: bytes) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        humaneval_rows(data, "source.jsonl")
    return caught.value


def test_a_record_becomes_a_row() -> None:
    """Prompt and starter code are public, the tests call the entry point, and the solution is a whole module."""
    task = _task()
    assert task["id"] == "Demo/0"
    assert task["family"] == "code_completion"
    assert task["input"]["language"] == "python"
    assert task["input"]["starter_code"] == record()["prompt"]
    assert task["input"]["prompt"].endswith(record()["prompt"])
    assert task["eval"]["canonical_solution"] == record()["prompt"] + "    return 2 * x\n"
    assert task["eval"]["tests"] == {
        "source": "inline",
        "code": "def check(candidate):\n    assert candidate(2) == 4\n\ncheck(double)\n",
    }


def test_what_the_prompt_defines_besides_goes_into_the_tests() -> None:
    """Imports, constants, and helpers with their decorators are copied before the tests. The entry point is not."""
    prompt = (
        "import math\nfrom functools import cache\n\nLIMIT = 3\n\n"
        "@cache\ndef helper(x):\n    return math.floor(x) + LIMIT\n\n"
        'def double(x):\n    """Return twice x."""\n'
    )
    code = _task(prompt=prompt)["eval"]["tests"]["code"]
    assert code.startswith(
        "import math\n\nfrom functools import cache\n\nLIMIT = 3\n\n"
        "@cache\ndef helper(x):\n    return math.floor(x) + LIMIT\n\n"
    )
    assert "def double" not in code
    assert code.endswith("check(double)\n")


def test_a_prompt_may_end_with_a_bare_head() -> None:
    """A prompt may end with a function header that has neither docstring nor body."""
    assert _task(prompt="def double(x):\n")["eval"]["tests"]["code"].endswith("check(double)\n")


def test_nothing_of_a_record_is_run() -> None:
    """The code of a record is parsed and never run."""
    touched = Path("planted-by-a-record")
    code = f"import pathlib\npathlib.Path({str(touched)!r}).touch()\n"
    _task(prompt=code + record()["prompt"], test=code + record()["test"])
    assert not touched.exists()


def test_blank_lines_are_passed_over_and_others_keep_their_numbers() -> None:
    """Blank lines make no rows, but they count in the line numbers of the other records."""
    rows = humaneval_rows(b"\n" + lines(record("a")) + b"  \n\r\n" + lines(record("b")), "source.jsonl")
    assert [(row.id, row.location.line) for row in rows] == [("a", 2), ("b", 5)]


def test_fields_that_are_not_needed_are_part_of_the_digest() -> None:
    """The digest of a record covers extra fields, and does not depend on the name of the source."""
    plain, more = humaneval_rows(lines(record("a"), record("b", note=1)), "source.jsonl")
    assert plain.digest != more.digest
    assert plain.digest == humaneval_rows(lines(record("a")), "another")[0].digest


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prompt": ""}, "'prompt' must be a non-empty string"),
        ({"test": None}, "'test' must be a non-empty string"),
        ({"entry_point": ["double"]}, "'entry_point' must be a non-empty string"),
        ({"entry_point": "double); import os; (x"}, "is not a Python name"),
        ({"entry_point": "triple"}, "the prompt does not define triple"),
        ({"prompt": "def double(x:\n"}, "'prompt' is not valid Python: SyntaxError"),
        ({"prompt": "x = " + "(" * 100_000 + "\n"}, "'prompt' is not valid Python"),
        ({"prompt": "-" * 200_000 + "1\n"}, "'prompt' is not valid Python"),
        ({"test": "def check(candidate)\n"}, "'test' is not valid Python: SyntaxError"),
        ({"test": "assert double(2) == 4\n"}, "'test' does not define the function 'check'"),
        ({"test": "check = print\n"}, "'test' does not define the function 'check'"),
    ],
)
def test_a_record_that_no_row_can_be_made_of_is_refused(changes: dict[str, Any], message: str) -> None:
    """B: an invalid record is refused. If a test did not define `check`, the candidate could define it."""
    error = _error(lines(record(), record("Demo/1", **changes)))
    assert message in str(error)
    assert "source.jsonl:2:1" in str(error)
    assert error.code == "import-row-invalid"


@pytest.mark.parametrize(
    ("data", "code", "place"),
    [
        (b'{"task_id": \n', "json-syntax", "source.jsonl:1"),
        (b'{"a": 1, "a": 2}\n', "key-duplicate", "source.jsonl:1:10"),
        (b'\n{"a": NaN}\n', "json-value", "source.jsonl:2:7"),
        (b"\xff\n", "file-encoding", "source.jsonl:1:1"),
        (b"\xef\xbb\xbf{}\n", "file-encoding", "source.jsonl:1:1"),
        (b"[" * 100_000 + b"\n", "too-deep", "source.jsonl:1:34"),
        (b"[1]\n", "import-row-invalid", "source.jsonl:1:1"),
        (b'"text"\n', "import-row-invalid", "source.jsonl:1:1"),
    ],
)
def test_a_line_that_is_no_record_is_refused_with_its_place(data: bytes, code: str, place: str) -> None:
    """K: a line that is not a strictly valid JSON object is refused, as in a pack."""
    error = _error(data)
    assert error.code == code
    assert place in str(error)


def test_all_problems_are_told_at_once() -> None:
    """All invalid lines and duplicate ids are reported in one error."""
    error = _error(lines(record("a"), {"task_id": "b"}) + b"{\n" + lines(record("a")))
    assert [problem.location.line for problem in error.problems if problem.location] == [2, 3, 4]


def test_the_manifest_for_packs_without_one_names_the_base_image() -> None:
    """A pack that gets the default manifest uses SecureBench's own base image."""
    assert MANIFEST["defaults"]["environment"]["image"] == "securebench/python:3.11"


@given(st.binary(max_size=300))
def test_no_bytes_raise_anything_but_a_configuration_error(data: bytes) -> None:
    """Random bytes give no rows or a ``ConfigError``, and never another exception."""
    try:
        rows = humaneval_rows(data, "source.jsonl")
    except ConfigError:
        return
    assert rows == []
