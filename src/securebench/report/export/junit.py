"""JUnit XML, which continuous integration systems show."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Final
from xml.etree import ElementTree as ET

from securebench.plurals import counted
from securebench.printable import printable, printable_line
from securebench.results.records.record import VerificationStatus

if TYPE_CHECKING:
    from collections.abc import Iterable

    from securebench.results.read import RecordedRun
    from securebench.results.recorded_task import RecordedTask

_TAIL: Final = 4000
"""Maximum characters of the agent's stdout, and of its stderr, that are written for a failure or an error."""

_STATUS: Final = VerificationStatus


def write_junit(runs: Iterable[RecordedRun], file: IO[str]) -> None:
    """Write a test suite for each run, and in it a test case for each trial.

    A failed trial is a failure, an infrastructure error is an error, and a pending trial is skipped. All trials without
    a record together are one more error, so that an incomplete run never looks complete. Text of an agent or a pack is
    written in printable form.
    """
    root = ET.Element("testsuites", {"name": "securebench"})
    root.extend([_suite(run) for run in runs])  # extend() turns all exceptions of an iterator into TypeError
    ET.indent(root)
    file.write(ET.tostring(root, encoding="us-ascii", xml_declaration=True).decode("ascii") + "\n")


def _suite(run: RecordedRun) -> ET.Element:
    suite = ET.Element("testsuite", {"name": printable_line(run.benchmark_id)})
    properties = ET.SubElement(suite, "properties")
    facts = {"run_id": run.run_id, "agent": run.label, "models": ", ".join(run.models)}
    for name, value in {**facts, "selection": run.selection.describe() if run.selection else ""}.items():
        if value:
            ET.SubElement(properties, "property", {"name": name, "value": printable_line(value)})
    total, counts, seconds = 0, dict.fromkeys(_STATUS, 0), 0.0
    for record in run.records():
        suite.append(_case(record))
        total += 1
        counts[record.status] += 1
        seconds += record.duration_seconds or 0.0
    errors = counts[_STATUS.ERROR]
    if missing := max(0, run.planned - total):
        case = ET.SubElement(suite, "testcase", {"classname": "securebench", "name": "trials without a record"})
        ET.SubElement(case, "error", {"type": "not_run", "message": f"{counted(missing, 'trial')} not run"})
        total, errors = total + 1, errors + 1
    numbers = {"tests": total, "failures": counts[_STATUS.FAILED], "errors": errors, "skipped": counts[_STATUS.PENDING]}
    for name, number in numbers.items():
        suite.set(name, str(number))
    suite.set("time", f"{seconds:.3f}")
    return suite


def _case(record: RecordedTask) -> ET.Element:
    name = record.task_id if record.trial == 1 else f"{record.task_id} (trial {record.trial})"
    case = ET.Element(
        "testcase",
        {
            "classname": f"{printable_line(record.benchmark_id)}.{printable_line(record.family)}",
            "name": printable_line(name),
            "time": f"{record.duration_seconds or 0.0:.3f}",
        },
    )
    if record.status is _STATUS.PENDING:
        ET.SubElement(case, "skipped", {"message": "this family has no verifier"})
    elif record.status is not _STATUS.PASSED:
        why = {"type": record.reason.value if record.reason else "", "message": printable_line(record.message)}
        ET.SubElement(case, "failure" if record.status is _STATUS.FAILED else "error", why)
        for stream in ("stdout", "stderr"):
            if text := printable(getattr(record.producer, stream)[-_TAIL:]):
                ET.SubElement(case, "system-out" if stream == "stdout" else "system-err").text = text
    return case
