"""Code under test that tampers with the test run does not pass. Each part of the evidence detects some cheat."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest

from securebench.errors import FailureReason
from securebench.verifiers.repo_patch.evidence.adapters import recognise
from securebench.verifiers.repo_patch.evidence.collection import required
from selected import variants
from verifiers.repo_patch.evidence.here import Here
from verifiers.repo_patch.evidence.styles import BROKEN, STYLES
from verifiers.repo_patch.evidence.tampering import KNOWS, TAMPERING

if TYPE_CHECKING:
    from pathlib import Path

REASONS = {FailureReason.TAMPERED, FailureReason.TESTS_FAILED, FailureReason.NO_VERDICT}


def repository(name: str) -> dict[str, str]:
    """Return the files of a repository with the cheat ``name``."""
    style, code = TAMPERING[name]
    if "_knows(" in code:
        code = f"_known = {_bodies(STYLES[style][0])}\n{KNOWS}{code}"
    core = f"{BROKEN}\n{code}" + ("\n_lie()\n" if "def _lie" in code else "")
    return {
        "calc/__init__.py": "",
        "calc/core.py": core,
        "tests/test_new.py": STYLES[style][0],
        "tests/test_old.py": "def test_old():\n    assert len([1]) == 1\n",
        "conftest.py": "",
    }


def _bodies(text: str) -> set[str]:
    """Return the bodies of the tests in ``text``, without indentation."""
    lines = text.splitlines()
    return {
        "\n".join(line.strip() for line in lines[node.lineno : node.end_lineno]).strip()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test")
    }


VANISHING = "the test module is none"


FOUND = (
    "assert methods do nothing",
    "base of assertEqual",
    "cases are not called",
    "equal in a line with assert",
    "raises swallows",
    "only a bare AssertionError counts",
    "files that are not in the arguments",
    "the reporter's own words",
    "only tests that are known by their text pass",
    "tests known by their text pass, and all is undone before the end",
    "assert methods are right again when an unknown test begins",
)
"""Cheats that passed in an earlier version. The others need ``--long``: each takes a second or two."""


@pytest.mark.parametrize("name", variants(sorted(TAMPERING.keys() - {VANISHING}), FOUND.__contains__))
def test_tampering_does_not_pass(name: str, tmp_path: Path) -> None:
    """A cheat in ``TAMPERING`` does not pass, whatever it replaces. ``VANISHING`` has a test of its own."""
    verdict = Here(repository(name)).judge(tmp_path / "r")
    assert verdict.reason in REASONS, (verdict, verdict.output.decode()[-2000:])


def test_tests_that_vanish_are_missed(tmp_path: Path) -> None:
    """A run fails if the change removes tests that the source of the test files defines."""
    files = repository(VANISHING)
    adapter = recognise("pytest tests")
    assert adapter is not None
    sources = {name: text.encode() for name, text in files.items() if "/test_" in name}
    needed = required(None, sources, adapter, usual_names=True)
    verdict = Here(files, needed=needed).judge(tmp_path / "r")
    assert verdict.reason is FailureReason.TESTS_FAILED
    assert verdict.evidence["vanished"] == 5
    assert required(verdict.reported, sources, adapter, usual_names=True).state == "complete"


NEEDED = {
    "assert methods do nothing": ("fingerprint", "controls"),
    "always equal": ("controls",),
    "equal to any of the same type": ("controls",),
    "all is undone before the end": ("spots", "controls"),
    "only tests that are known by their text pass": ("fingerprint",),
    "tests known by their text pass, and all is undone before the end": ("spots",),
    "assert methods are right again when an unknown test begins": ("spots",),
    VANISHING: (),  # only the list of needed tests detects it, and this test gives none
}


@pytest.mark.long
@pytest.mark.parametrize(("name", "without"), NEEDED.items(), ids=NEEDED)
def test_each_part_of_the_evidence_is_needed(name: str, without: tuple[str, ...], tmp_path: Path) -> None:
    """A cheat passes if the parts of the evidence that detect it are switched off."""
    assert Here(repository(name), without=without).judge(tmp_path / "r").reason is None
