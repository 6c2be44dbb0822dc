"""Small runs with one fault, their resumption, and the checks of their results."""

from __future__ import annotations

import json
import shutil
import signal
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from benchmarks.packs import BENCHMARKS
from faults.hook import FIRED, Fault
from securebench.faults import FaultPoint
from securebench.fs.rmtree import MARKER
from securebench.results.run_directory.files import JOURNAL, SUPERSEDED
from tester_run.real_run import KNOCK, RealRun, anonymous
from tester_run.running import records

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from faults.server import ForkServer
    from securebench.sandboxes.base import SandboxDriver

AGENT = """\
import json, os
task = json.load(open(os.environ["SECUREBENCH_TASK_FILE"]))
if "repo" in task:
    import runpy, sys
    sys.argv = ["agent.py", "solution"]
    runpy.run_path("/opt/securebench/agent/repository_agent.py", run_name="__main__")
elif "starter_code" in task:
    print("def double(n):\\n    return n * 2")
elif "instructions" in task:
    open("sorted.txt", "w").write("abc")
else:
    print("Answer: 212")
"""
CHECKER = "import sys; sys.exit(open('sorted.txt').read() != 'abc')"
ROWS: list[dict[str, Any]] = [
    {
        "family": "short_answer",
        "input": {"question": "Water boils at how many degrees?"},
        "eval": {"accepted_answers": ["100"]},
    },
    {
        "family": "code_completion",
        "input": {"prompt": "Write double(n).", "starter_code": "def double(n):\n"},
        "eval": {"tests": {"source": "inline", "code": "assert double(21) == 42\n"}},
    },
    {
        "family": "terminal_task",
        "input": {"instructions": "Sort the letters."},
        "environment": {"workdir": "/app"},
        "eval": {"checker": {"command": ["python3", "-I", "-c", CHECKER]}},
    },
]
"""A task that the agent fails, and two that it solves."""

REPOSITORY_PACK = BENCHMARKS / "repo-patch-smoke"
SECONDS = 120.0
LEFT_SECONDS = 20.0
_RESUMPTIONS = 3
_IN_PROGRESS = 2
"""How many trials may lack a record if a run is killed or cannot write: the one being recorded, and the next one."""
_BETWEEN_RECORDS = frozenset({FaultPoint.RECORD_READY, FaultPoint.RECORD_WRITTEN})
_ERRORS = {"sandbox_failed", "engine_unavailable", "storage_failed", "internal_error", "egress_failed"}
_SCRATCH = ("running.json", "owner.json", "agent", "scratch")
"""What a run removes from its directory when it ends."""
_PRIVATE_DIRECTORIES = {(FaultPoint.DIRECTORY_SYNC, name) for name in ("agent", "scratch")}


class FaultRun(RealRun):
    """A run of one text, one code, one terminal and optionally one repository task. Its agents have egress."""

    def __init__(self, root: Path, driver: SandboxDriver, server: ForkServer, *, repository: bool = False) -> None:
        super().__init__(root, driver, knock=True)
        self._server = server
        (root / "agent" / "agent.py").write_text(KNOCK + AGENT)
        shutil.copy(REPOSITORY_PACK / "agents" / "agent.py", root / "agent" / "repository_agent.py")
        rows = [{"id": f"pack/{row['family']}", **row} for row in (*ROWS, *([_repository_row()] if repository else []))]
        (root / "pack" / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        self.results = root / "results"
        self.passed = list[tuple[str, str]]()
        """The points that the processes of the last :meth:`go` passed, with the labels of their subjects."""

    def go(self, fault: Fault | None = None) -> subprocess.CompletedProcess[str]:
        """Start or resume the run, with ``fault`` if one is given, and wait for its end."""
        logs = self.root / "logs"
        shutil.rmtree(logs, ignore_errors=True)
        logs.mkdir()
        hook = json.dumps([asdict(fault) if fault else None, str(logs)])
        arguments = ["run", str(self.root / "tester.yaml"), "--resume"]
        done = self._server.run(hook, arguments, self.root, SECONDS)
        lines = [line for path in logs.iterdir() for line in path.read_text().splitlines()]
        self.passed = [(point, subject) for point, _, subject in (line.partition("\t") for line in lines)]
        return done

    def written(self) -> int:
        """Return the number of different records, including those of superseded attempts."""
        paths = (self.results / name for name in (JOURNAL, SUPERSEDED))
        return len({line for path in paths if path.exists() for line in path.read_bytes().splitlines()})

    def require_nothing_left(self) -> None:
        """Wait for background removals. Then fail if the run left anything behind.

        This includes temporary files in its results.
        """
        left = self.left()
        deadline = time.monotonic() + LEFT_SECONDS
        while left and time.monotonic() < deadline:
            time.sleep(0.05)
            left = sorted({*left} & {*self.left()})  # anything new belongs to another test
        assert not left, left
        inside = [path for path in self.results.rglob("*") if path.name.startswith(".") and path.name != MARKER]
        inside += [path for name in _SCRATCH if (path := self.results / name).exists()]
        assert not inside, [str(path) for path in inside]


def _repository_row() -> dict[str, Any]:
    """Return the row of ``REPOSITORY_PACK`` that has the smallest repository, adapted to the pack of the run."""
    rows = [json.loads(line) for line in (REPOSITORY_PACK / "tasks.jsonl").read_text().splitlines()]
    (row,) = (row for row in rows if row["id"].endswith("/voluptuous-remove-extra"))
    return {
        **row,
        "id": "pack/repo_patch",
        "family": "repo_patch",
        "environment": {**row["environment"], "workdir": "/testbed"},
    }


class NotReachedError(AssertionError):
    """A failure: the run passed the point less often than the fault's ``number``."""


def try_fault(run: FaultRun, fault: Fault, clean: list[dict[str, Any]]) -> str:
    """Start ``run`` with ``fault``, then resume it until it is complete. Return the fault's outcome for the table.

    After the fault, each record must be that of a clean run or have the status ``error``. Each trial whose agent has
    ended must have a record, except the trials in progress if the run was killed or could not write. Nothing may be
    left behind, unless the run was killed or the fault prevented a removal. The resumed run must have the records of a
    clean run, and leave nothing behind.
    """
    before = run.written()
    done = run.go(fault)
    if (FIRED, "") not in run.passed:
        raise NotReachedError(done.stderr)
    killed = done.returncode == -signal.SIGKILL
    assert killed or done.returncode in {0, 1, 3}, (done.returncode, done.stderr)
    assert "Traceback" not in done.stderr, done.stderr
    judged = [record for record in _records(run) if record["verification_status"] != "error"]
    assert [record for record in judged if record not in clean] == []
    paid = run.passed.count((FaultPoint.AGENT_DONE, ""))
    stops = killed or fault.subject == JOURNAL or fault.point in _BETWEEN_RECORDS
    assert paid - (run.written() - before) <= (_IN_PROGRESS if stops else 0), done.stderr
    # A failed removal is left to the next run. Private directories are synced when they are created and when removed.
    is_left = fault.point == FaultPoint.TREE_REMOVE or (fault.point, fault.subject) in _PRIVATE_DIRECTORIES
    if not killed and not is_left:
        run.require_nothing_left()
    outcome = _outcome(run, done, clean, killed=killed)
    last = done
    for _ in range(_RESUMPTIONS):
        if _records(run) == clean and last.returncode == 0:
            break
        last = run.go()
    assert last.returncode == 0, last.stderr
    assert _records(run) == clean
    run.require_nothing_left()
    return outcome


def _records(run: FaultRun) -> list[dict[str, Any]]:
    return anonymous(run.root) if (run.results / JOURNAL).exists() else []


def _outcome(
    run: FaultRun, done: subprocess.CompletedProcess[str], clean: list[dict[str, Any]], *, killed: bool
) -> str:
    """Return the outcome of a fault in a few words."""
    if killed:
        return "killed"
    if _records(run) == clean:
        return "unaffected" if done.returncode == 0 else f"reported ({done.returncode})"
    path = run.results / JOURNAL
    reasons = {record.get("failure_reason") for record in (records(run.root) if path.exists() else ())}
    errors = sorted(reason for reason in reasons if reason in _ERRORS)
    # With exit code 1 the run stopped before any task: the errors are those of an earlier run.
    has_errors = errors and done.returncode != 1
    return f"error: {', '.join(errors)}" if has_errors else f"stopped ({done.returncode})"
