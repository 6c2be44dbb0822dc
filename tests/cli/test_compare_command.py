"""Tests of ``securebench compare``: each output format, hostile texts, and runs of ten thousand records."""

from __future__ import annotations

import csv
import io
import json
import resource
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from rich.console import Console

from bounds import on_this_machine
from securebench.cli import cli
from securebench.cli.views.compare import tables
from securebench.results.comparison import compare, tally
from securebench.results.read import read_run
from securebench.results.records.record import VerificationStatus
from synthetic_run import header, record, records, write_run

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

    from securebench.resources import JsonValue

_PASSED, _FAILED = VerificationStatus.PASSED, VerificationStatus.FAILED
HOSTILE = "=1+1\x1b]0;owned\x07|`<script>alert(1)</script>`\u202e[x](http://evil)"


def _compare(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["compare", *map(str, arguments)])


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """Return two runs of ten tasks. The agent of the first run solves three tasks, that of the second solves eight."""
    return [
        write_run(
            tmp_path / name,
            [record(number, _PASSED if number < solved else _FAILED) for number in range(10)],
            header(10, harness={"type": "command", "name": f"agent-{name}", "digest": "ab" * 32, "env": {}}),
        )
        for name, solved in (("a", 3), ("b", 8))
    ]


def test_plain_lines(runs: list[Path]) -> None:
    """On a pipe, each run has one line; the second has the difference, its interval and the p-value."""
    result = _compare(*runs)
    assert result.exit_code == 0, result.output
    assert "agent-a: pass rate % 30.0 [10.8, 60.3]" in result.output
    assert "agent-b: pass rate % 80.0 [49.0, 94.3], difference +50.0 [" in result.output
    assert "p 0.062, won:lost 5:0" in result.output
    assert "Passed only by agent-b, not by agent-a: made-up/task-00003, made-up/task-00004" in result.output


@pytest.mark.parametrize(("width", "is_table"), [(60, False), (80, True), (200, True)])
def test_a_terminal_shows_every_value_whole(runs: list[Path], width: int, is_table: bool) -> None:
    """All values fit the width of the terminal without being cut: in a table if there is room, or else in lines."""
    first, other = (tally(read_run(directory)) for directory in runs)
    console = Console(file=io.StringIO(), width=width)
    console.print(tables(console, {"made-up": [compare(first, other)]}))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert max(map(len, text.splitlines())) <= width
    values = ("agent-a", "agent-b", "30.0 [10.8, 60.3]", "80.0 [49.0, 94.3]", "0.062", "5:0")
    assert all(value in (text if is_table else " ".join(text.split())) for value in values)
    assert ("─" in text) is is_table


def test_json_has_every_task_that_differs(runs: list[Path]) -> None:
    """JSON output has the ids of all tasks whose pass rates differ, and the help says so."""
    assert "the ids of all tasks whose pass rates differ" in " ".join(_compare("--help").output.split())
    (found,) = json.loads(_compare(*runs, "--json").output)
    assert found["only_b"] == [f"made-up/task-{number:05}" for number in range(3, 8)]
    assert found["p_value"] == pytest.approx(0.0625)


def test_csv_has_numbers(runs: list[Path]) -> None:
    """CSV output has pass rates as numbers, and the name of the statistical test."""
    (row,) = csv.DictReader(io.StringIO(_compare(*runs, "--csv").output))
    assert (float(row["rate_a"]), float(row["rate_b"]), row["method"]) == (0.3, 0.8, "mcnemar")


def test_one_run_is_not_enough(runs: list[Path]) -> None:
    """The error for a single run says that a second run of the same pack is missing."""
    result = _compare(runs[0])
    assert result.exit_code == 1
    assert "no second run of made-up" in str(result.exception)


@pytest.mark.parametrize("form", ["", "--markdown", "--csv"])
def test_hostile_names_are_inert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    """Hostile names add no control character to any format, no markup or link to Markdown, and no formula to CSV.

    They are the names of the benchmark, its task, the agents and the directories of the runs.
    """
    monkeypatch.chdir(tmp_path)
    for name, solved in (("=a\x1b", _PASSED), ("=b\x1b", _FAILED)):
        harness: dict[str, JsonValue] = {"type": "command", "name": HOSTILE, "digest": "ab" * 32, "env": {}}
        head = header(1, harness=harness, benchmark={"id": HOSTILE, "version": "1"})
        write_run(tmp_path / name, [record(0, solved, task_id=HOSTILE, benchmark_id=HOSTILE)], head)
    result = _compare("=a\x1b", "=b\x1b", *([form] if form else []))
    assert result.exit_code == 0, result.output
    assert not set(result.output) & {"\x1b", "\x07", "\u202e"}
    if form == "--csv":
        (row,) = csv.DictReader(io.StringIO(result.output))
        assert row["benchmark"].startswith("'=1+1")
        assert (row["a"], row["b"]) == ("'=a\\x1b", "'=b\\x1b")
    if form == "--markdown":
        assert "<script>" not in result.output
        assert "](http" not in result.output


def test_a_page(tmp_path: Path) -> None:
    """The HTML page has the difference and a content security policy. Hostile names add no script or link."""
    for name, solved in (("a", _PASSED), ("b", _FAILED)):
        harness: dict[str, JsonValue] = {"type": "command", "name": HOSTILE, "digest": "ab" * 32, "env": {}}
        write_run(tmp_path / name, [record(0, solved, task_id=HOSTILE)], header(1, harness=harness))
    result = _compare(tmp_path / "a", tmp_path / "b", "--html", tmp_path / "out.html")
    assert result.exit_code == 0, result.output
    page = (tmp_path / "out.html").read_text()
    assert "Content-Security-Policy" in page
    assert "-100.0" in page
    assert "<script" not in page
    assert "\x1b" not in page
    assert 'href="http' not in page


@pytest.mark.long
def test_ten_thousand_records_in_three_seconds(large_run: Path, tmp_path: Path) -> None:
    """Comparing two runs of ten thousand records takes less than six seconds of processor time.

    On a slow machine, the limit is longer.
    """
    other = write_run(tmp_path / "other", records(10_000, seed=2))
    command = [sys.executable, "-m", "securebench", "compare", str(large_run), str(other), "--json"]
    limit = on_this_machine(6)
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=110)
    spent = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    assert spent < limit, f"{spent:.1f} s of processor time for twice ten thousand records"
