"""Probes on the host: attacks are contained, and are reported as not contained if the protection is switched off."""

from __future__ import annotations

import io
import tarfile
import tempfile
from typing import TYPE_CHECKING, Any

import pytest
from markupsafe import Markup

from securebench.audit.installation import host_probes, record_probes
from securebench.audit.installation.host_probes import HOST_KINDS
from securebench.audit.installation.model import AuditOutcome
from securebench.audit.installation.probes import ProbeContext
from securebench.audit.installation.record_probes import RECORD_KINDS
from securebench.audit.run.report import RunReport
from securebench.fs.rmtree import clear_directory, make_private_directory
from securebench.report import detail, pages
from securebench.report.export import tables
from securebench.verifiers.base import VerificationResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

KINDS = {kind.name: kind for kind in (*HOST_KINDS, *RECORD_KINDS)}
SLOW = {"many_files": "tree", "many files": "archive"}
"""The attacks that are tried only with ``--long``, and their kinds."""


@pytest.fixture
def context(tmp_path: Path) -> Iterator[ProbeContext]:
    """Yield a context with a scratch directory, which is cleared afterwards even if it contains hostile trees."""
    scratch = tmp_path / "scratch"
    make_private_directory(scratch)
    yield ProbeContext(scratch)
    clear_directory(scratch)


def outcomes(kind: str, context: ProbeContext, *names: str) -> dict[str, AuditOutcome]:
    """Run the named items of a kind, or all items that are not slow, and return the outcome of each."""
    chosen = KINDS[kind]
    items = names or tuple(name for name in chosen.items if name not in SLOW)
    return {finding.item: finding.outcome for finding in chosen.run(context, items)}


@pytest.mark.parametrize("kind", [name for name in KINDS if name != "output"])
def test_everything_is_contained(kind: str, context: ProbeContext) -> None:
    """Every attack of the kind that is not slow has the outcome "contained"."""
    found = outcomes(kind, context)
    assert found
    assert set(found.values()) == {AuditOutcome.CONTAINED}


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", SLOW)
def test_slow_attacks_are_contained(name: str, context: ProbeContext) -> None:
    """Slow attacks have the outcome "contained"."""
    assert outcomes(SLOW[name], context, name) == {name: AuditOutcome.CONTAINED}


@pytest.mark.parametrize("limit", ["MAX_SECONDS", "MAX_TOTAL_SECONDS"])
def test_too_much_cpu_time_is_a_problem(limit: str, context: ProbeContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """An attack that uses more CPU time than one of the limits is not contained."""
    monkeypatch.setattr(host_probes, limit, -1.0)
    assert set(outcomes("archive", context, "a device").values()) == {AuditOutcome.NOT_CONTAINED}


@pytest.mark.slow
def test_hostile_texts_stay_text(context: ProbeContext) -> None:
    """Hostile texts in records are contained in each output format.

    The test is slow, because SecureBench starts a process or writes a file for each format.
    """
    assert set(outcomes("output", context).values()) == {AuditOutcome.CONTAINED}


class NaiveStore:
    """A candidate store that archives a tree without any check."""

    def __init__(self, _directory: Path) -> None:
        """Ignore the directory."""

    def seal_tree(self, _kind: object, root: Path) -> None:
        """Archive the whole tree, and write the file that a git hook in the tree would write."""
        (root / "ran").write_text("a hook ran")
        with tarfile.open(fileobj=io.BytesIO(), mode="w") as archive:
            archive.add(root)


def _extract(directory: Path, pieces: list[bytes]) -> None:
    with tarfile.open(fileobj=io.BytesIO(b"".join(pieces))) as archive:
        archive.extractall(directory, filter="fully_trusted")


class LenientVerifier:
    """A verifier that passes every answer."""

    family = "short_answer"

    def verify(self, _view: object, candidate: Any, _context: object) -> VerificationResult:
        """Return a passed verdict."""
        del candidate
        return VerificationResult(reason=None)


SWITCHED_OFF: dict[str, tuple[tuple[str, ...], Callable[[pytest.MonkeyPatch], object]]] = {
    "tree": (
        ("fifo", "git_fsmonitor", "git_hooks"),
        lambda patch: patch.setattr(host_probes, "CandidateStore", NaiveStore),
    ),
    "archive": (
        ("a parent", "a file through a link"),
        lambda patch: patch.setattr(host_probes, "replace_content", _extract),
    ),
    "patch": (
        ("C09 a new setup.py", "C12 a link to the host", "C13 a .gitmodules file"),
        lambda patch: patch.setattr(host_probes, "violations", lambda *_: ()),
    ),
    "pack": (
        ("billion laughs", "the path '../x'", "the key 'privileged'"),
        lambda patch: [
            patch.setattr(host_probes, name, lambda *_: None)
            for name in ("load_benchmark_pack", "compile_benchmark_pack")
        ],
    ),
    "text": (
        ("all labels", "a denial", "empty as short_answer"),
        lambda patch: patch.setattr(
            host_probes,
            "_VERIFIERS",
            dict.fromkeys(("multiple_choice", "short_answer", "free_response"), LenientVerifier()),
        ),
    ),
    "record": (
        ("failures turned into passes", "failures removed", "a candidate replaced", "a record of another run"),
        lambda patch: patch.setattr(record_probes, "verify_run", lambda *_: RunReport(checks=())),
    ),
}


@pytest.mark.parametrize("kind", SWITCHED_OFF)
def test_without_its_control_an_attack_is_not_contained(
    kind: str, context: ProbeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A probe reports "not contained" if the protection is replaced by code that stops no attack."""
    names, switch_off = SWITCHED_OFF[kind]
    switch_off(monkeypatch)
    assert set(outcomes(kind, context, *names).values()) == {AuditOutcome.NOT_CONTAINED}


@pytest.mark.parametrize("name", ["an absolute path", "a file through a link to the root"])
def test_an_archive_with_an_absolute_path_is_noticed_wherever_temporary_files_are(
    name: str, context: ProbeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file named ``escaped`` in the directory for temporary files does not change the outcome of the probe."""
    temporary = context.scratch / "temporary"
    temporary.mkdir()
    (temporary / "escaped").touch()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    assert outcomes("archive", context, name) == {name: AuditOutcome.CONTAINED}
    monkeypatch.setattr(host_probes, "replace_content", _extract)
    assert outcomes("archive", context, name) == {name: AuditOutcome.NOT_CONTAINED}


def test_output_that_is_not_escaped_is_noticed(context: ProbeContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables and pages whose texts are not escaped are reported as not contained.

    Control characters in a text are found.
    """
    monkeypatch.setattr(detail, "_escaped", Markup)
    monkeypatch.setattr(tables, "csv_cell", lambda text: text)
    assert record_probes._obeyed("\x1b[2J") == "it contains control characters: U+001B"
    names = ("a table", "an HTML report")
    assert outcomes("output", context, *names) == dict.fromkeys(names, AuditOutcome.NOT_CONTAINED)


def test_a_report_without_escaping_is_noticed(context: ProbeContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """A report whose templates do not escape their values is reported as not contained."""
    unescaped = pages._environment().overlay(autoescape=False)
    monkeypatch.setattr(pages, "_environment", lambda: unescaped)
    assert outcomes("output", context, "an HTML report") == {"an HTML report": AuditOutcome.NOT_CONTAINED}


def test_a_probe_that_raises_has_no_result(context: ProbeContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """A probe that raises an error is reported as not contained."""

    def broken(*_: object) -> None:
        raise ValueError("broken")

    monkeypatch.setattr(host_probes, "_sealed", broken)
    assert outcomes("tree", context, "fifo") == {"fifo": AuditOutcome.NOT_CONTAINED}
