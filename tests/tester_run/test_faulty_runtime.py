"""Whole runs on a runtime that sometimes fails. Each task gets the verdict of a clean run, or ends in an error."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from sandboxes.oci.faulty_runtime import (
    ANY_MODE,
    MODES,
    SYSTEM_PATH,
    compile_faulty_runtime,
    needs_faulty_runtime,
)
from tester_run.real_run import RealRun, anonymous
from tester_run.running import records

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.sandboxes.oci import OciDriver

pytestmark = [pytest.mark.sandboxes_alone, pytest.mark.oci, *needs_faulty_runtime]
AGENT = """\
import json, os
task = json.load(open(os.environ["SECUREBENCH_TASK_FILE"]))
text = json.dumps(task)
right = "wrong" not in text
if "starter_code" in task:
    print("def double(n):\\n    return n * 2" if right else "def double(n):\\n    return n")
elif "instructions" in task:
    open("sorted.txt", "w").write("abc" if right else "bca")
else:
    print("Answer: 100" if right else "Answer: 212")
"""
RARELY_MATTERS = 11
"""The failure mode that most commands survive: only a few of its failures leave a task without a verdict."""

SELF_TEST = 8
"""The runtime never fails for this number of sandboxes at the start of a run.

The self-test before the first task starts fewer. If one of them failed, the run would be refused.
"""
CHECKER = "import sys; sys.exit(open('sorted.txt').read() != 'abc')"


def _rows(number: int, hint: str) -> list[dict[str, Any]]:
    """Return a task of each of three families. The agent solves them unless ``hint`` is ``wrong``."""
    environment = {"timeout_seconds": 15}
    rows: list[dict[str, Any]] = [
        {
            "family": "short_answer",
            "input": {"question": f"Water boils at how many degrees? {hint}"},
            "eval": {"accepted_answers": ["100"]},
        },
        {
            "family": "code_completion",
            "input": {"prompt": f"Write double(n). {hint}", "starter_code": "def double(n):\n"},
            "eval": {"tests": {"source": "inline", "code": "assert double(21) == 42\n"}},
        },
        {
            "family": "terminal_task",
            "input": {"instructions": f"Sort the letters. {hint}"},
            "environment": {"workdir": "/app", **environment},
            "eval": {"checker": {"command": ["python3", "-I", "-c", CHECKER], "timeout_seconds": 15}},
        },
    ]
    return [{"environment": environment, **row, "id": f"pack/{number}-{row['family']}-{hint}"} for row in rows]


class FaultyRun(RealRun):
    """A run without retries. Its tasks belong to three families. The agent solves half of the tasks."""

    main = "tester_run.hasty_main"

    def __init__(self, root: Path, driver: OciDriver, rounds: int) -> None:
        super().__init__(root, driver)
        rows = [row for number in range(rounds) for hint in ("right", "wrong") for row in _rows(number, hint)]
        (root / "pack" / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (root / "agent" / "agent.py").write_text(AGENT)


CleanRecords = Callable[[int], list[dict[str, Any]]]
WORKERS = ("--workers", "6")
"""More workers than processors, because many tasks wait until a time limit."""


@pytest.fixture(scope="module")
def clean_runs() -> dict[int, list[dict[str, Any]]]:
    """Return an empty cache that maps a number of rounds to the records of a clean run."""
    return {}


@pytest.fixture
def clean_records(
    clean_runs: dict[int, list[dict[str, Any]]], oci_driver: OciDriver, tmp_path_factory: pytest.TempPathFactory
) -> CleanRecords:
    """Return a function that returns the comparable records of a clean run with a given number of rounds."""

    def of(rounds: int) -> list[dict[str, Any]]:
        if rounds not in clean_runs:
            clean = FaultyRun(tmp_path_factory.mktemp("clean"), oci_driver, rounds)
            assert clean.finish(*WORKERS, seconds=300).returncode == 0
            clean_runs[rounds] = anonymous(clean.root)
        return clean_runs[rounds]

    return of


def _require_true_or_open(
    root: Path, driver: OciDriver, clean_records: CleanRecords, mode: int, *, seed: int, rounds: int, percent: int = 30
) -> str:
    """Compare a run on a faulty runtime, and its resumption on a sound one, to a clean run.

    Return one letter for each failure of the runtime: ``a`` for mode 1, ``b`` for mode 2, and so on.
    """
    expected = clean_records(rounds)
    assert {record["verification_status"] for record in expected} == {"passed", "failed"}
    program = compile_faulty_runtime(root / "runtime", mode, seed=seed, percent=percent, spared=SELF_TEST)
    faulty = FaultyRun(root / "faulty", driver, rounds)
    done = faulty.finish(*WORKERS, variables={"PATH": f"{program.parent}:{SYSTEM_PATH}"}, seconds=300)
    assert done.returncode == 3, done.stderr
    judged = [record for record in anonymous(faulty.root) if record["verification_status"] != "error"]
    assert 0 < len(judged) < len(expected)
    assert [record for record in judged if record not in expected] == []
    open_records = [record for record in records(faulty.root) if record["verification_status"] == "error"]
    assert {record["failure_reason"] for record in open_records} <= {"sandbox_failed", "engine_unavailable"}
    done = faulty.finish(*WORKERS, "--resume", seconds=300)
    assert done.returncode == 0, done.stderr
    assert anonymous(faulty.root) == expected
    assert not faulty.left()
    return (program.parent / "report").read_text()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_runtime_that_fails_in_every_way(tmp_path: Path, oci_driver: OciDriver, clean_records: CleanRecords) -> None:
    """In a run in which the runtime fails in at least six ways, each verdict equals that of a clean run (C.1)."""
    ways = _require_true_or_open(tmp_path, oci_driver, clean_records, ANY_MODE, seed=1, rounds=3)
    assert len(set(ways)) >= 6, ways


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("mode", MODES, ids=MODES.get)
def test_a_runtime_that_fails_in_one_way(
    mode: int, seed: int, tmp_path: Path, oci_driver: OciDriver, clean_records: CleanRecords
) -> None:
    """In a run in which the runtime fails in one way only, each verdict equals that of a clean run."""
    percent = 60 if mode == RARELY_MATTERS else 30
    _require_true_or_open(tmp_path, oci_driver, clean_records, mode, seed=10 + seed, rounds=6, percent=percent)
