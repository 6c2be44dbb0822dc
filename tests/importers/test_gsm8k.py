"""GSM8K's records become rows, and an invalid record is reported with its place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from importers.records import lines
from securebench.cli.import_command import command
from securebench.errors import ConfigError
from securebench.importers.gsm8k import gsm8k_rows, split_of

if TYPE_CHECKING:
    from pathlib import Path


def record(**changes: Any) -> dict[str, Any]:
    """Return a record in the authors' form."""
    return {"question": "Six boxes hold 7 eggs each. How many?", "answer": "6*7=<<6*7=42>>42\n#### 42", **changes}


def test_a_record_becomes_a_row() -> None:
    """The question is public, the number is the answer, and the solution is left out."""
    (first, second) = gsm8k_rows(lines(record(), record(answer="So\n#### 1,250")), "test.jsonl", "test")
    assert dict(first.task) == {
        "id": "gsm8k/test/0",
        "family": "short_answer",
        "input": {"question": record()["question"], "answer_format": "a number"},
        "eval": {"accepted_answers": [42]},
        "metadata": {"benchmark": "gsm8k"},
    }
    assert second.task["eval"] == {"accepted_answers": [1250]}
    assert gsm8k_rows(lines(record(answer="x\n#### -0.5")), "f", "test")[0].task["eval"] == {"accepted_answers": [-0.5]}


@pytest.mark.parametrize(
    "changes", [{"answer": "42"}, {"answer": "x\n#### many"}, {"answer": 42}, {"question": None}, {"answer": "#### 42"}]
)
def test_what_is_no_record(changes: dict[str, Any]) -> None:
    """A record without a question, or without ``####`` and a number on a line below the solution, is refused."""
    with pytest.raises(ConfigError) as caught:
        gsm8k_rows(lines(record(), record(**changes)), "test.jsonl", "test")
    assert [(problem.code, str(problem.location)) for problem in caught.value.problems] == [
        ("import-row-invalid", "test.jsonl:2:1")
    ]


def test_the_split_is_in_the_name_of_the_file() -> None:
    """The split is read from the start of the file name in a path or URL. The default is ``test``."""
    found = [split_of(name) for name in ("a/train.jsonl", "https://example.com/test.jsonl?x=train", "mine.jsonl")]
    assert found == ["train", "test", "test"]


def test_a_file_becomes_a_pack(tmp_path: Path) -> None:
    """``securebench import gsm8k`` writes a pack from a file, with at most ``--limit`` rows."""
    source = tmp_path / "train.jsonl"
    source.write_bytes(lines(*(record(question=f"{number}?") for number in range(5))))
    result = CliRunner().invoke(command, ["gsm8k", str(source), "--limit", "2", "--output", str(tmp_path / "pack")])
    assert result.exit_code == 0, result.output
    assert '"gsm8k/train/1"' in (tmp_path / "pack" / "tasks.jsonl").read_text().splitlines()[-1]
