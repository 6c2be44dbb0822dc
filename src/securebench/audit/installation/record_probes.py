"""Probes of finished runs: edits that must be noticed, and hostile texts that must stay text."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Final

from securebench.audit.installation.model import AuditOutcome
from securebench.audit.installation.probes import ProbeContext, ProbeFinding, ProbeKind, findings
from securebench.audit.run.verify import Evidence, verify_run
from securebench.errors import ConfigError
from securebench.report.export.junit import write_junit
from securebench.report.export.tables import write_csv
from securebench.report.extras import require
from securebench.results.read import read_run
from securebench.tester_config import load_tester_config
from securebench.tester_run import RunOptions, RunParts, run_benchmark
from securebench.testing.attacks.records import ATTACKS, EDITS, MARK, TEXT, RecordEdit
from securebench.testing.scripted_sandbox import ScriptedDriver

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from pathlib import Path

    from securebench.testing.scripted_sandbox import ProgramContext

_TASKS: Final = 4
_TESTER: Final = """\
schema_version: "0.2"
run: {id: audit, output_dir: results}
benchmark: {manifest: pack/manifest.yaml, tasks: pack/tasks.jsonl}
harness: {type: command, config: {command: [agent], agent_dir: agent}}
"""
_CONTROL: Final = frozenset(chr(code) for code in (*range(9), *range(11, 32), *range(127, 160), 0x202E, 0x2066))


def finished_run(root: Path, answers: tuple[str, ...], tags: tuple[str, ...] = ()) -> Path:
    """Run a small pack with a scripted agent that gives ``answers`` in turn, and return the run's directory.

    Nothing is executed, because the driver is a fake. The records are written as in a real run.
    """
    for name in ("pack", "agent"):
        (root / name).mkdir(parents=True)
    row = {"family": "short_answer", "input": {"question": "?"}, "eval": {"accepted_answers": ["yes"]}}
    rows = [{"id": f"pack/{number}", **row, "metadata": {"tags": list(tags)}} for number in range(_TASKS)]
    (root / "agent" / "agent.py").write_text("", encoding="utf-8")
    (root / "pack" / "manifest.yaml").write_text("id: pack\nversion: 1\n", encoding="utf-8")
    (root / "pack" / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (root / "tester.yaml").write_text(_TESTER, encoding="utf-8")
    driver = ScriptedDriver()
    left = list(answers) * _TASKS

    @driver.program("agent")
    def agent(context: ProgramContext) -> None:
        context.stdout.write(left.pop(0).encode("utf-8", "surrogatepass"))

    config = load_tester_config(root / "tester.yaml")
    run_benchmark(config, RunOptions(workers=1), (), RunParts(make_driver=lambda *_: driver))
    return root / "results"


def edit_runs(context: ProbeContext, names: Collection[str]) -> Iterable[ProbeFinding]:
    """Make each edit in a copy of a finished run, and check that ``verify-run`` notices it."""
    run = finished_run(context.scratch / "run", ("Answer: yes\n", "Answer: no\n"))
    if problem := _problem(run):
        return [ProbeFinding.of(name, f"no result: an unchanged run was refused ({problem})", "") for name in names]

    def attempt(name: str, edit: RecordEdit) -> ProbeFinding:
        copy = context.scratch / f"edited-{name.replace(' ', '-')}"
        shutil.copytree(run, copy)
        edit.edit(copy)
        problem = _problem(copy)
        return ProbeFinding.of(name, "" if problem else "the edit was not noticed", problem)

    return findings(_EDITS, names, attempt)


def _problem(run: Path) -> str:
    """Return the first check of ``securebench verify-run`` that fails for a run, or an empty string."""
    report = verify_run(run, Evidence())
    return next((f"{check.name}: {check.summary}" for check in report.checks if check.found), "")


def show_hostile_texts(context: ProbeContext, names: Collection[str]) -> Iterable[ProbeFinding]:
    """Check that hostile texts in the records of a run stay text in each available output format."""
    run = finished_run(context.scratch / "hostile", (TEXT,), (f"=1+{MARK}", ATTACKS[0]))

    def attempt(name: str, check: Callable[[Path, Path], str]) -> ProbeFinding:
        if name in _EXTRA:
            try:
                require("report")
            except ConfigError as error:
                return ProbeFinding(name, AuditOutcome.NOT_APPLICABLE, error.message)
        return ProbeFinding.of(
            name, check(run, context.scratch / f"shown-{name.replace(' ', '-')}"), "it was shown as text"
        )

    return findings(_OUTPUTS, names, attempt)


def _terminal(run: Path, _output: Path) -> str:
    """Run ``securebench show`` on a task. Return what is wrong with its output, or an empty string."""
    command = [sys.executable, "-P", "-m", "securebench", "show", str(run), "pack/0"]
    shown = subprocess.run(command, capture_output=True, check=False, timeout=60).stdout.decode("utf-8", "replace")  # noqa: S603
    if MARK not in shown:
        return "no result: the hostile text was not shown"
    return _obeyed(shown)


def _obeyed(text: str) -> str:
    found = sorted({f"U+{ord(char):04X}" for char in text} & {f"U+{ord(char):04X}" for char in _CONTROL})
    return f"it contains control characters: {', '.join(found)}" if found else ""


def _table(run: Path, output: Path) -> str:
    """Write a CSV file. Return what is wrong with the file, or an empty string if nothing is wrong."""
    with output.open("w+", encoding="utf-8", newline="") as file:
        write_csv(read_run(run), file)
        file.seek(0)
        cells = [cell for row in csv.reader(file) for cell in row]
    if not any(MARK in cell for cell in cells):
        return "no result: the hostile text is not in the CSV file"
    bad = [cell[:40] for cell in cells if cell.startswith(("=", "+", "@")) or _obeyed(cell)]
    return f"cells with formulas or control characters: {bad}" if bad else ""


def _junit(run: Path, output: Path) -> str:
    """Write a JUnit file. Return its unexpected elements, or an empty string."""
    with output.open("w+", encoding="utf-8") as file:
        write_junit([read_run(run)], file)
    if MARK not in output.read_text(encoding="utf-8"):
        return "no result: the hostile text is not in the JUnit file"
    kinds = {element.tag for element in ET.parse(output).iter()}  # noqa: S314 - written a moment ago
    others = kinds - _JUNIT_TAGS
    return f"it has unexpected elements: {sorted(others)}" if others else ""


def _page(run: Path, output: Path) -> str:
    """Write an HTML report. Return its forbidden elements and attributes, or an empty string."""
    from securebench.report.html_report import write_report

    write_report([run], output)
    page, parser = output.read_text(encoding="utf-8"), _Page()
    if MARK not in page:
        return "no result: the hostile text is not in the HTML report"
    parser.feed(page)
    return "; ".join(parser.problems)


class _Page(HTMLParser):
    """Collects elements and attributes that a report must not have."""

    def __init__(self) -> None:
        super().__init__()
        self.problems: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Check an element."""
        if tag in {"script", "iframe", "object", "embed", "form", "base", "link", "img", "image"} or MARK in tag:
            self.problems.append(f"it has an element <{tag[:40]}>")
        for name, value in attrs:
            if name.startswith("on") or MARK in name or (name in {"href", "src"} and MARK in (value or "")):
                self.problems.append(f"it has an attribute {name[:40]}")


_JUNIT_TAGS: Final = frozenset(
    {"testsuites", "testsuite", "testcase", "failure", "error", "skipped"}
    | {"properties", "property", "system-out", "system-err"}
)
_EDITS: Final = {edit.name: edit for edit in EDITS}
_OUTPUTS: Final[dict[str, Callable[[Path, Path], str]]] = {
    "a terminal": _terminal,
    "a table": _table,
    "a JUnit file": _junit,
    "an HTML report": _page,
}
_EXTRA: Final = frozenset({"an HTML report"})

RECORD_KINDS: Final = (
    ProbeKind("record", "edits of a finished run", {name: edit.entry for name, edit in _EDITS.items()}, edit_runs),
    ProbeKind("output", "hostile texts in records", dict.fromkeys(_OUTPUTS, "M13"), show_hostile_texts),
)
