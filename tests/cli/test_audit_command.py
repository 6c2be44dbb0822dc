"""Tests of ``securebench audit --self``: its output formats and its exit codes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from securebench.audit.installation.catalogue import entries_of, read_catalogue, select_entries
from securebench.audit.installation.model import (
    AuditedDriver,
    AuditOutcome,
    AuditReport,
    EntryResult,
    ProbeResult,
    judge_entry,
)
from securebench.audit.installation.render import rows_of
from securebench.cli import cli
from securebench.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

    from securebench.audit.installation.run import AuditRequest

HOSTILE = "<script>alert(1)</script> \x1b[2J | cell"


def made(request: AuditRequest, outcome: AuditOutcome) -> AuditReport:
    """Return a report in which each entry has one probe with the given outcome and a hostile text."""
    request.report("crun: escape attempts")
    entries = {
        entry.id: EntryResult(
            entry, outcome, HOSTILE, (ProbeResult("breakout", "`acct`", entry.id, "crun", outcome, HOSTILE),)
        )
        for entry in entries_of(request.sections)
    }
    drivers = (AuditedDriver("crun", "crun 1.8.1"), AuditedDriver("docker", missing="no engine"))
    begun, sections = "2026-11-23T09:00:00Z", tuple(request.sections)
    return AuditReport("0.1.0", "ab" * 32, begun, 12.3, "Linux", request.image, drivers, sections, entries)


@pytest.fixture
def outcome(monkeypatch: pytest.MonkeyPatch) -> list[AuditOutcome]:
    """Replace the audit with one that reports the outcome in the returned list. A test may change the list."""
    wanted = [AuditOutcome.CONTAINED]
    monkeypatch.setattr(
        "securebench.audit.installation.run.audit_installation", lambda request: made(request, wanted[0])
    )
    return wanted


@pytest.fixture
def _no_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail the test if an audit is started."""
    monkeypatch.setattr(
        "securebench.audit.installation.run.audit_installation", lambda _request: pytest.fail("an audit was started")
    )


def audit(*options: str) -> Result:
    """Run ``securebench audit --self`` with these options."""
    return CliRunner().invoke(cli, ["audit", "--self", *options])


def test_a_pipe_gets_lines(outcome: list[AuditOutcome]) -> None:
    """On a pipe, each entry has one line without control characters, and progress goes to stderr."""
    result = audit("--entry", "A0*")
    lines = result.stdout.splitlines()
    ids = [entry.id for entry in entries_of(select_entries(read_catalogue(), ["A0*"]))]
    assert [line.split("\t")[1] for line in lines[2:-1]] == ids
    assert lines[1] == "driver\tdocker\tno engine"
    assert lines[-1] == f"{len(ids)} contained; drivers: crun; 12 s"
    assert "\x1b" not in result.stdout
    assert "escape attempts" in result.stderr
    assert result.exit_code == 0


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (AuditOutcome.CONTAINED, 0),
        (AuditOutcome.NOT_APPLICABLE, 0),
        (AuditOutcome.NOT_CHECKED, 0),
        (AuditOutcome.NOT_CONTAINED, 1),
    ],
)
def test_the_exit_code_says_if_anything_was_not_contained(
    outcome: list[AuditOutcome], found: AuditOutcome, code: int
) -> None:
    """The exit code is 1 if an entry is "not contained", and 0 for all other outcomes."""
    outcome[0] = found
    assert audit("--entry", "A01").exit_code == code


def test_a_program_gets_json(outcome: list[AuditOutcome], tmp_path: Path) -> None:
    """With ``--json`` and ``-o``, a JSON report of each entry and its probes is written to the file."""
    path = tmp_path / "report.json"
    assert audit("--json", "--entry", "A01", "-o", str(path)).stdout == ""
    report = json.loads(path.read_text())
    assert report["counts"]["contained"] == 1
    assert report["entries"][0]["probes"] == [
        {"name": "breakout/`acct`", "place": "crun", "outcome": "contained", "how": HOSTILE}
    ]
    assert report["drivers"][1]["missing"] == "no engine"


def test_a_page_says_that_no_probe_of_an_entry_ran(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """If an entry has no probe results, the page says that none of its probes ran. It does not say "shown by tests"."""

    def without_results(request: AuditRequest) -> AuditReport:
        report = made(request, AuditOutcome.NOT_CONTAINED)
        return replace(report, entries={entry: judge_entry(one.entry, ()) for entry, one in report.entries.items()})

    monkeypatch.setattr("securebench.audit.installation.run.audit_installation", without_results)
    path = tmp_path / "report.html"
    assert audit("--html", str(path), "--entry", "A01").exit_code == 1
    page = path.read_text()
    assert "no result: none of its probes ran" in page
    assert "shown by tests" not in page


def test_a_page_is_self_contained_and_escapes(outcome: list[AuditOutcome], tmp_path: Path) -> None:
    """The HTML page has a content security policy and no script, and hostile texts are escaped."""
    path = tmp_path / "report.html"
    assert audit("--html", str(path), "--entry", "A01").exit_code == 0
    page = path.read_text()
    assert "Content-Security-Policy" in page
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "\x1b" not in page
    assert 'id="A01"' in page


def test_tables_go_between_markers(outcome: list[AuditOutcome], tmp_path: Path) -> None:
    """A new Markdown page gets the tables; in an existing page, only the text between the markers changes."""
    path = tmp_path / "page.md"
    assert audit("--markdown", str(path), "--entry", "A01").exit_code == 0
    path.write_text("before\n" + path.read_text() + "after\n")
    assert audit("--markdown", str(path), "--entry", "B0*").exit_code == 0
    text = path.read_text()
    assert text.startswith("before\n# Audit")
    assert text.endswith("after\n")
    assert rows_of(text, "catalogue")[0] == "B01"
    assert "A01" not in rows_of(text, "catalogue")
    assert "\\|" in text


@pytest.mark.usefixtures("_no_audit")
def test_a_page_without_markers_is_refused_before_the_audit(tmp_path: Path) -> None:
    """An existing page without markers is refused and not changed. The audit, which takes minutes, is not started."""
    path = tmp_path / "page.md"
    path.write_text("a page of mine\n")
    result = audit("--markdown", str(path))
    assert getattr(result.exception, "code", "") == "audit-page-unmarked"
    assert path.read_text() == "a page of mine\n"


def test_missing_directories_are_created(outcome: list[AuditOutcome], tmp_path: Path) -> None:
    """Missing parent directories of the output file are created."""
    assert outcome == [AuditOutcome.CONTAINED]
    done = audit("-o", str(tmp_path / "new" / "report.txt"))
    assert done.exit_code == 0, done.output
    assert (tmp_path / "new" / "report.txt").read_text()


@pytest.mark.usefixtures("_no_audit")
def test_a_file_that_cannot_be_written_is_refused_before_the_audit(tmp_path: Path) -> None:
    """An output file that cannot be written is refused before the audit, which takes minutes."""
    (tmp_path / "file").touch()
    done = audit("-o", str(tmp_path / "file" / "report.txt"))
    assert isinstance(done.exception, StorageError)
    assert f"cannot read or write {tmp_path}/file/report.txt" in str(done.exception)


@pytest.mark.usefixtures("_no_audit")
def test_a_page_that_is_not_text_is_refused_before_the_audit(tmp_path: Path) -> None:
    """A page that is not UTF-8 is refused before the audit, and the error names the file and the line."""
    (tmp_path / "page.md").write_bytes(b"text\n\xff")
    done = audit("--markdown", str(tmp_path / "page.md"))
    assert isinstance(done.exception, ConfigError)
    assert f"{tmp_path}/page.md:2" in str(done.exception)


def test_an_unknown_entry_is_an_error() -> None:
    """An id that matches no entry is an error with the code ``audit-entry-unknown``."""
    result = audit("--entry", "Z99")
    assert getattr(result.exception, "code", "") == "audit-entry-unknown"


def test_without_self_nothing_is_done() -> None:
    """Without ``--self``, the command is a usage error. The flag leaves room for other kinds of audits."""
    result = CliRunner().invoke(cli, ["audit"])
    assert result.exit_code == 2
    assert "--self" in result.stderr
