"""Probes on the host: with its control switched off, each kind reports attacks that were not contained."""

from __future__ import annotations

import io
import tarfile
import tempfile
from typing import TYPE_CHECKING, Any

import pytest

from securebench.audit.installation import host_probes, record_probes
from securebench.audit.installation.host_probes import HOST_KINDS
from securebench.audit.installation.model import AuditOutcome
from securebench.audit.installation.probes import ProbeContext
from securebench.audit.installation.record_probes import RECORD_KINDS
from securebench.audit.run.report import RunReport
from securebench.fs.rmtree import clear_directory, make_private_directory
from securebench.report import pages
from securebench.report.export import tables
from securebench.verifiers.base import VerificationResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

KINDS = {kind.name: kind for kind in (*HOST_KINDS, *RECORD_KINDS)}
SLOW = {"many_files", "deep_tree", "many files", "a deep tree"}


@pytest.fixture
def context(tmp_path: Path) -> Iterator[ProbeContext]:
    """Give a scratch directory that hostile trees can be removed from."""
    scratch = tmp_path / "scratch"
    make_private_directory(scratch)
    yield ProbeContext(scratch)
    clear_directory(scratch)


def outcomes(kind: str, context: ProbeContext, *names: str) -> dict[str, AuditOutcome]:
    """Run some items of a kind, or all quick ones, and return the outcome of each."""
    chosen = KINDS[kind]
    items = names or tuple(name for name in chosen.items if name not in SLOW)
    return {finding.item: finding.outcome for finding in chosen.run(context, items)}


@pytest.mark.parametrize("kind", [name for name in KINDS if name != "output"])
def test_everything_is_contained(kind: str, context: ProbeContext) -> None:
    """Each attack of the kind has a result, and that is "contained"."""
    found = outcomes(kind, context)
    assert found
    assert set(found.values()) == {AuditOutcome.CONTAINED}


@pytest.mark.slow
def test_hostile_texts_stay_text(context: ProbeContext) -> None:
    """The same for records in each form of output; each starts a process or writes a report."""
    assert set(outcomes("output", context).values()) == {AuditOutcome.CONTAINED}


class NaiveStore:
    """A store that archives a tree as it is."""

    def __init__(self, _directory: Path) -> None:
        """Ignore the place."""

    def seal_tree(self, _kind: object, root: Path) -> None:
        """Read the whole tree, and start a program as a version control tool would."""
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
        """Pass."""
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
    """Every probe can fail: it looks at what happened, not at the control."""
    names, switch_off = SWITCHED_OFF[kind]
    switch_off(monkeypatch)
    assert set(outcomes(kind, context, *names).values()) == {AuditOutcome.NOT_CONTAINED}


@pytest.mark.parametrize("name", ["an absolute path", "a file through a link to the root"])
def test_an_archive_with_an_absolute_path_is_noticed_wherever_temporary_files_are(
    name: str, context: ProbeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the directory of the probe matters, not a file of the same name in the directory for temporary files."""
    temporary = context.scratch / "temporary"
    temporary.mkdir()
    (temporary / "escaped").touch()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    assert outcomes("archive", context, name) == {name: AuditOutcome.CONTAINED}
    monkeypatch.setattr(host_probes, "replace_content", _extract)
    assert outcomes("archive", context, name) == {name: AuditOutcome.NOT_CONTAINED}


def test_output_that_is_not_escaped_is_noticed(context: ProbeContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page without escaping has elements of the text, and a table without it has formulas."""
    monkeypatch.setattr(pages._environment(), "autoescape", False)
    monkeypatch.setattr(tables, "csv_cell", lambda text: text)
    assert record_probes._obeyed("\x1b[2J") == "it contains control characters: U+001B"
    assert outcomes("output", context, "a table") == {"a table": AuditOutcome.NOT_CONTAINED}


def test_a_probe_that_raises_has_no_result(context: ProbeContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unknown is never contained."""

    def broken(*_: object) -> None:
        raise ValueError("broken")

    monkeypatch.setattr(host_probes, "_sealed", broken)
    assert outcomes("tree", context, "fifo") == {"fifo": AuditOutcome.NOT_CONTAINED}
