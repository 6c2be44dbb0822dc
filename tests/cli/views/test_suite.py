"""``securebench show`` and ``securebench status`` of a suite."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from rich.console import Console

from securebench.cli import cli
from securebench.cli.views.suite import Standing, leaderboard_table
from securebench.results.records.record import Assurance, VerificationStatus
from securebench.results.statistics import Estimate, Interval
from securebench.results.suite import RecordedSuite, write_suite
from synthetic_run import BENCHMARK_ID, header, record, write_run

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

    from securebench.resources import JsonValue

_PASSED, _FAILED = VerificationStatus.PASSED, VerificationStatus.FAILED
HOSTILE = "\x1b[2Jbest\n\u202e"


def invoke(*arguments: object) -> Result:
    """Run a command."""
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def harness(name: str) -> JsonValue:
    """Return the harness of a run's header."""
    return {"type": "command", "digest": "ab" * 32, "env": {}, "name": name}


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """Return a suite with a complete run, an interrupted run of a part of the pack, and a run that was not started."""
    solved = [record(number, _PASSED if number < 3 else _FAILED) for number in range(4)]
    write_run(tmp_path / "p" / "whole", solved, header(4, harness=harness("whole")))
    weak = record(0, _PASSED, assurance=Assurance.EXIT_CODE)
    write_run(tmp_path / "p" / "part", [weak], header(2, pack_tasks=4, harness=harness(HOSTILE)))
    write_suite(tmp_path, RecordedSuite("s", {"p/whole": {}, "p/part": {"agent": "other"}, "p/later": {}}))
    return tmp_path


def test_show_prints_the_leaderboard(suite: Path) -> None:
    """Notes name partial selections, missing trials, weak passes and missing runs. Agent names are escaped."""
    result = invoke("show", suite)
    assert result.exit_code == 0, result.output
    name = r"\x1b[2Jbest\n\u202e"
    assert result.output.splitlines() == [
        "Leaderboard: pass rates in %, with 95 % intervals",
        f"  {name}: {BENCHMARK_ID} 100.0 [20.7, 100.0], mean 100.0, errors 0, time 0:02, cost $0.01",
        f"  whole: {BENCHMARK_ID} 75.0 [30.1, 95.4], mean 75.0, errors 0, time 0:16, cost $0.04",
        f"Note: {name} on {BENCHMARK_ID}: 2 of 4 tasks, not the whole benchmark",
        f"Note: {name} on {BENCHMARK_ID}: 1 of 2 trials not run",
        f"Note: {name} on {BENCHMARK_ID}: 1 pass on exit code only",
        "Note: p/later was not started",
    ]


@pytest.mark.parametrize(("width", "tables"), [(60, 4), (80, 4), (200, 1)])
def test_a_leaderboard_fits_its_terminal(width: int, tables: int) -> None:
    """If one table is too wide, each pack has its own table, and the totals have another.

    No name and no interval is wrapped or cut.
    """
    packs = ["text-smoke", "code-completion-smoke", "terminal-task-smoke"]
    agents = ["demo-agent", "claude-code claude-sonnet-4-5"]
    rate = Estimate(0.75, Interval(0.301, 0.954), 4)
    found = [Standing(agent, dict.fromkeys(packs, rate), notes=["a note " * 20]) for agent in agents]
    console = Console(file=io.StringIO(), width=width)
    console.print(leaderboard_table(console, found))
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    for name in packs:
        assert sum(name in line for line in lines) == 1
    for name in agents:
        assert sum(name in line for line in lines) == tables
    assert sum(line.count("75.0 [30.1, 95.4]") for line in lines) == len(packs) * len(agents)
    assert all(name in " ".join(lines) for name in ("mean", "errors", "time", "cost"))


def test_show_prints_the_leaderboard_as_json(suite: Path) -> None:
    """``securebench show --json`` has the pass rates and the runs that were not started."""
    found = json.loads(invoke("show", suite, "--json").output)
    assert (found["suite"], found["not_started"]) == ("s", ["p/later"])
    rates = {one["agent"]: one["packs"][BENCHMARK_ID]["pass_rate"] for one in found["standings"]}
    assert rates == {"whole": 0.75, HOSTILE: 1.0}


def test_status_prints_a_line_for_each_run(suite: Path) -> None:
    """The lines have the state and counts of each run, and name the runs that were not started."""
    lines = invoke("status", suite).output.splitlines()
    assert lines[0] == f"{BENCHMARK_ID}, whole: finished, 4 of 4 (100%): 3 passed, 1 failed, 0 errors"
    assert lines[1].endswith("1 of 2 (50%): 1 passed, 0 failed, 0 errors, 2 of 4 tasks, not the whole benchmark")
    assert lines[2:] == ["p/later: not started"]
    found = json.loads(invoke("status", suite, "--json").output)
    assert [run["state"] for run in found["runs"]] == ["finished", "interrupted"]


def test_a_second_run_of_an_agent_does_not_replace_the_first(suite: Path) -> None:
    """Both runs are shown, so a run with an edited header cannot hide another run."""
    write_run(suite / "p" / "later", [record(0, _FAILED)], header(1, harness=harness("whole")))
    output = invoke("show", suite).output
    assert f"{BENCHMARK_ID} 75.0 [30.1, 95.4], {BENCHMARK_ID} ({suite / 'p' / 'later'}) 0.0 [" in output


@pytest.mark.parametrize("arguments", [("show", "TASK"), ("show", "--failed"), ("status", "--watch")])
def test_what_needs_one_run_says_so(suite: Path, arguments: tuple[str, str]) -> None:
    """``show`` with a task or ``--failed``, and ``status --watch``, are refused for a suite."""
    result = invoke(arguments[0], suite, arguments[1])
    assert (result.exit_code, "is a suite" in result.output) == (2, True)
