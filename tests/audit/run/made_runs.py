"""A small finished run, and functions that change it.

The agent and the verifiers are fakes. All other code is that of real runs.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

from run_fakes import FakeProducer, seal
from securebench.audit.run.report import CheckState
from securebench.audit.run.verify import Evidence, verify_run
from securebench.benchmark_pack import load_benchmark_pack
from securebench.errors import EgressError
from securebench.harnesses.base import AgentResult
from securebench.results.records.chain import line_hash
from securebench.results.run_directory.closing import Closing, RecordTally
from securebench.results.run_directory.files import JOURNAL, SUPERSEDED
from securebench.results.run_directory.header import read_header
from tester_run.running import make_parts, row, run, write_run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from securebench.audit.run.report import RunReport
    from securebench.harnesses.base import ProduceContext
    from securebench.tasks import AgentView

WRONG = ("pack/task-1", "pack/task-4")
"""Tasks for which the agent gives a wrong answer."""


def _answer(_number: int, view: AgentView, context: ProduceContext) -> AgentResult:
    text = "wrong" if view.task_id in WRONG else "right"
    return AgentResult(candidate=seal(context.store, text), stdout=f"{text}\n", trajectory='{"step": 1}\n')


def _no_provider(number: int, view: AgentView, context: ProduceContext) -> AgentResult:
    if view.task_id == "pack/task-2":
        return AgentResult(candidate=None, fault=EgressError("the provider is unavailable"))
    return _answer(number, view, context)


def make_run(root: Path) -> Path:
    """Run five tasks with short answers and one task whose family has no verifier, and return the run directory.

    The first attempt at one task ends in an error, and the run is resumed. The pack is ``root/pack``.
    """
    root.mkdir()
    write_run(root, 5)
    with (root / "pack" / "tasks.jsonl").open("a") as file:
        file.write(json.dumps(row("pack/tool", "tool_call")) + "\n")
    run(root, parts=make_parts(FakeProducer(hook=_no_provider)))
    run(root, parts=make_parts(FakeProducer(hook=_answer)), resume=True)
    return root / "results"


def copy_of(directory: Path, target: Path) -> Path:
    """Copy a run or a pack, and return the copy."""
    shutil.copytree(directory, target)
    return target


def verify(directory: Path, *, with_pack: bool = False, **evidence: Any) -> RunReport:
    """Verify a run, and with ``with_pack`` compare it with the pack next to its directory."""
    if with_pack:
        pack = directory.parent / "pack"
        evidence["pack"] = load_benchmark_pack(pack / "manifest.yaml", pack / "tasks.jsonl")
    return verify_run(directory, Evidence(**evidence))


def failed(report: RunReport) -> dict[str, list[str]]:
    """Return the problems of each check that failed."""
    return {
        check.name: [str(problem) for problem in check.problems]
        for check in report.checks
        if check.state is CheckState.FAILED
    }


def edit_lines(directory: Path, change: Callable[[list[dict[str, Any]]], object], name: str = JOURNAL) -> None:
    """Change records in a file, without updating the hash chain and the closing of the run."""
    path = directory / name
    records = [json.loads(line) for line in path.read_bytes().splitlines()]
    change(records)
    path.write_bytes(b"".join(json.dumps(record).encode("ascii") + b"\n" for record in records))


def rebuild(directory: Path, change: Callable[[list[dict[str, Any]]], object] | None = None) -> None:
    """Change records of the journal, and recompute hash chain and closing with SecureBench's code, as a forger can."""
    header = read_header(directory, older=True, check_root=False)
    assert header is not None
    names = [name for name in (JOURNAL, SUPERSEDED) if (directory / name).exists()]
    files = {name: [json.loads(line) for line in (directory / name).read_bytes().splitlines()] for name in names}
    if change:
        change(files[JOURNAL])
    tally = RecordTally(header.genesis)
    order = sorted((record["sequence"], name, at) for name in names for at, record in enumerate(files[name]))
    lines: dict[str, list[bytes]] = {name: [] for name in names}
    for number, (_, name, at) in enumerate(order):
        record = files[name][at]
        record |= {"sequence": number, "previous": tally.last}
        lines[name].append(json.dumps(record).encode("ascii"))
        tally.last, tally.number = line_hash(lines[name][-1]), number + 1
        if digest := record["candidate_digest"]:
            tally.candidates.add(digest)
        if name == JOURNAL:
            tally.statuses[record["verification_status"]] += 1
        else:
            tally.superseded += 1
    for name in names:
        (directory / name).write_bytes(b"".join(line + b"\n" for line in lines[name]))
    ending = header.closing.ending if header.closing else "finished"
    header.closed(Closing.of(tally, header.planned, ending, directory)).write(directory)
