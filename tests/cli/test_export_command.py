"""Tests of ``securebench export``: the content of each format, and records with hostile texts."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner

from securebench.cli import cli
from securebench.errors import ConfigError, FailurePhase, FailureReason, StorageError
from securebench.results.records.record import Failure, Output, VerificationStatus
from synthetic_run import header, record, trajectory, write_run

if TYPE_CHECKING:
    from pathlib import Path

_PASSED, _FAILED, _ERROR = VerificationStatus.PASSED, VerificationStatus.FAILED, VerificationStatus.ERROR
HOSTILE = (
    "=cmd|'/c calc'!A0\x1b]0;x\x07]]><script>alert(1)</script>&amp;\u202e|www.evil.example http://evil.example `x`\x00"
)
STEPS: list[dict[str, Any]] = [
    {"step": 1, "kind": "thought", "text": "First look."},
    {"step": 2, "kind": "command", "tool": "bash", "command": "ls"},
    {"step": 3, "kind": "command", "command": "cat a"},
    {"step": 4, "kind": "result", "output": "a\n"},
    {"step": 5, "kind": "result", "output": HOSTILE},
    {"step": 6, "kind": "message", "text": "Done."},
    {"step": 7, "kind": "usage", "input_tokens": 5},
]


def export(directory: Path, *arguments: str) -> str:
    """Return what ``securebench export`` prints for a run. Fails if the exit code is not 0."""
    result = CliRunner().invoke(cli, ["export", str(directory), *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a run of four planned tasks: one passed, one failed, one with an error, and one without a record."""
    directory = tmp_path / "run"
    directory.mkdir()
    steps = trajectory(directory, "made-up/task-00000", *STEPS)
    given = [record(0, _PASSED, provenance=steps), record(1, _FAILED), record(2, _ERROR)]
    return write_run(directory, given, header(4))


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """Return a run with a hostile text as task id, message, output, step and name of the agent.

    The text contains control characters, a formula, markup and links.
    """
    directory = tmp_path / "hostile"
    why = Failure(FailureReason.WRONG_ANSWER, FailurePhase.VERIFY, HOSTILE)
    output = Output(stdout=HOSTILE * 1000, stderr=HOSTILE)
    directory.mkdir()
    steps = trajectory(directory, HOSTILE, *STEPS)
    given = [record(0, _FAILED, task_id=HOSTILE, failure=why, producer=output, provenance=steps)]
    harness = {"type": "command", "name": HOSTILE, "digest": "ab" * 32, "env": {}}
    return write_run(directory, given, header(1, harness=harness))  # type: ignore[arg-type]


def test_csv(run: Path) -> None:
    """CSV has one row for each record. The verdict of an error is empty, so that it is not read as a failure."""
    rows = list(csv.DictReader(io.StringIO(export(run, "--csv"))))
    assert [row["status"] for row in rows] == ["passed", "failed", "error"]
    assert [row["passed"] for row in rows] == ["true", "false", ""]
    assert rows[0]["cost_usd"] == "0.01"


def test_junit(run: Path) -> None:
    """JUnit output distinguishes failures from errors, and has one error for all trials that have not run."""
    suite = ET.fromstring(export(run, "--junit")).find("testsuite")
    assert suite is not None
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "4",
        "failures": "1",
        "errors": "2",
        "skipped": "0",
    }
    found = {case.get("name"): [child.tag for child in case] for case in suite.iter("testcase")}
    assert found["made-up/task-00000"] == []
    assert found["made-up/task-00001"] == ["failure", "system-out"]
    assert found["trials without a record"] == ["error"]


def test_markdown(run: Path) -> None:
    """Markdown has the pass rate of tasks with a verdict, its interval, and the number of trials that have not run."""
    assert "Pass rate 50.0 % of 2 tasks, 95 % interval 9.5 to 90.5 %." in export(run, "--markdown")
    assert "\n1 of 4 trials not run.\n" in export(run, "--markdown")


def test_parquet(run: Path, tmp_path: Path) -> None:
    """Parquet columns have booleans and numbers, and a missing verdict is null."""
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is an extra")
    export(run, "--parquet", "-o", str(tmp_path / "out.parquet"))
    table = parquet.read_table(tmp_path / "out.parquet")
    assert table.column("passed").to_pylist() == [True, False, None]
    assert table.column("duration_seconds").to_pylist()[0] == 2.5


def test_atif(run: Path, tmp_path: Path) -> None:
    """In ATIF, steps are numbered from 1 and a result refers to its call. Only a trial with a trajectory has a file."""
    assert export(run, "--atif", "-o", str(tmp_path / "out")) == f"1 trajectory in {tmp_path / 'out'}\n"
    (file,) = (tmp_path / "out").iterdir()
    found = json.loads(file.read_bytes())
    assert [step["step_id"] for step in found["steps"]] == [1, 2, 3, 4, 5]
    assert [step["source"] for step in found["steps"]] == ["user", "agent", "agent", "agent", "agent"]
    calls = [step["tool_calls"][0] for step in found["steps"] if "tool_calls" in step]
    assert [(call["function_name"], call["arguments"]) for call in calls] == [
        ("bash", {"command": "ls"}),
        ("shell", {"command": "cat a"}),
    ]
    assert found["steps"][2]["observation"]["results"] == [
        {"source_call_id": calls[0]["tool_call_id"], "content": "a\n"}
    ]
    assert found["final_metrics"]["total_prompt_tokens"] == 1000


def test_atif_without_any_trajectory(tmp_path: Path) -> None:
    """If no trial has a trajectory, ATIF export writes no file and says why."""
    write_run(tmp_path / "run", [record(0, _PASSED)])
    expected = f"0 trajectories in {tmp_path / 'out'}: no trial has a trajectory\n"
    assert export(tmp_path / "run", "--atif", "-o", str(tmp_path / "out")) == expected


def test_missing_directories_are_created(run: Path, tmp_path: Path) -> None:
    """Missing parent directories are created. If that is impossible, the error names the output file."""
    assert export(run, "--csv", "-o", str(tmp_path / "new" / "directory" / "out.csv")) == ""
    assert (tmp_path / "new" / "directory" / "out.csv").read_text() == export(run, "--csv")
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"cannot write .*/file/out\.csv: ") as caught:
        CliRunner().invoke(
            cli, ["export", str(run), "--csv", "-o", str(tmp_path / "file" / "out.csv")], catch_exceptions=False
        )
    assert "--resume" not in str(caught.value)


def test_inspect(run: Path) -> None:
    """In an Inspect log, a sample with an error has no score, and an incomplete run has the status "cancelled"."""
    found = json.loads(export(run, "--inspect"))
    assert (found["version"], found["status"]) == (2, "cancelled")
    assert [sample.get("scores", {}).get("securebench", {}).get("value") for sample in found["samples"]] == [
        "C",
        "I",
        None,
    ]
    assert "error" in found["samples"][2]
    assert found["results"]["scores"][0]["metrics"]["accuracy"]["value"] == 0.5
    assert [message["role"] for message in found["samples"][0]["messages"]] == [
        *("user", "assistant", "assistant", "tool", "assistant", "tool", "assistant")
    ]


def test_junit_of_a_damaged_run_names_the_damage(run: Path) -> None:
    """The error for a damaged journal has the code ``journal-damaged``; it is not an internal error."""
    with (run / "candidates.jsonl").open("a") as file:
        file.write("{}\n")
    result = CliRunner().invoke(cli, ["export", str(run), "--junit"])
    assert isinstance(result.exception, ConfigError)
    assert result.exception.code == "journal-damaged"


@pytest.mark.parametrize("form", ["--csv", "--junit", "--markdown", "--inspect"])
def test_hostile_records_are_text(hostile: Path, form: str) -> None:
    """In each text format, hostile texts are cut, and their control characters do not appear.

    They cannot become formulas in CSV, markup in JUnit, or markup and links in Markdown.
    """
    text = export(hostile, form)
    assert not set(text) & {"\x1b", "\x07", "\u202e", "\x00"}
    assert len(text) < 200_000
    if form == "--csv":
        (row,) = csv.DictReader(io.StringIO(text))
        assert row["task_id"].startswith("'=")
    elif form == "--junit":
        assert "<script" not in text
        ET.fromstring(text)
    elif form == "--markdown":
        assert "<script" not in text
        assert "http://" not in text
        assert "www." not in text
        assert text.count("\n| ") == 2
    else:
        json.loads(text)


def test_a_failed_export_leaves_no_file(run: Path, tmp_path: Path) -> None:
    """If a record is damaged, the export fails and leaves no output file, not even a partial one."""
    journal = run / "candidates.jsonl"
    journal.write_bytes(journal.read_bytes().replace(b'"failed"', b'"passed"', 1))
    result = CliRunner().invoke(cli, ["export", str(run), "--csv", "-o", str(tmp_path / "out.csv")])
    assert isinstance(result.exception, ConfigError)
    assert result.exception.code == "journal-damaged"
    assert not [path for path in tmp_path.iterdir() if "out.csv" in path.name]


def test_formats_that_are_not_text_need_a_path(run: Path) -> None:
    """An export without a format, or to Parquet or ATIF without ``--output``, is a usage error with advice."""
    for arguments in ([], ["--parquet"], ["--atif"]):
        result = CliRunner().invoke(cli, ["export", str(run), *arguments])
        assert result.exit_code == 2
        assert "--output" in result.output or "choose a format" in result.output


def test_ten_thousand_records(large_run: Path) -> None:
    """The CSV of a run with 10,000 records has a header and one line for each record, in the order of the records."""
    text = export(large_run, "--csv")
    assert text.count("\n") == 10_001
    ids = [row["task_id"] for row in csv.DictReader(io.StringIO(text))]
    assert ids == [f"made-up/task-{number:05}" for number in range(10_000)]
