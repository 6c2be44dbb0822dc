"""A pack with one task of each active family, and scripted models that solve the tasks."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any, Final

from benchmarks.packs import BENCHMARKS
from real_agents.runs import PLAIN_MODEL, short_answers
from real_agents.solutions import CODE, REPOSITORY, TERMINAL, TEXT, replies_of, rows_of, scripts_of
from securebench.testing.provider import Say
from securebench.testing.provider.scripts import by_marker, give_up

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from securebench.testing.provider import ScriptBook, TextBook

FAMILIES: Final = (
    "multiple_choice",
    "short_answer",
    "free_response",
    "code_completion",
    "terminal_task",
    "repo_patch",
)
_ENVIRONMENTS: Final[dict[str, dict[str, Any]]] = {
    TERMINAL: {"image": "securebench/python:3.11", "workdir": "/app", "timeout_seconds": 120},
    REPOSITORY: {"workdir": "/testbed", "timeout_seconds": 120},
}
_OWN_FAMILY: Final = {TERMINAL: "terminal_task", REPOSITORY: "repo_patch", CODE: "code_completion"}


def mixed_pack(root: Path, families: Sequence[str] = FAMILIES) -> tuple[Path, Path]:
    """Write a pack with one task of each of ``families`` below ``root``; return the paths of its manifest and tasks."""
    directory = root / "pack"
    shutil.copytree(BENCHMARKS / TERMINAL, directory, ignore=shutil.ignore_patterns("*.yaml", "*.jsonl"))
    (directory / "manifest.yaml").write_text("id: mixed\nversion: 1\n")
    rows = [row for family, (_, row) in _rows().items() if family in families]
    (directory / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return directory / "manifest.yaml", directory / "tasks.jsonl"


def solving_all() -> ScriptBook:
    """Return a book of scripts that solve every task of the mixed pack."""
    known = {marker: script for pack, row in _rows().values() for marker, script in scripts_of(pack, [row])}
    return by_marker(known, give_up())


def one_task(root: Path, program: str) -> tuple[Path, Path]:
    """Write a pack with one task in which ``program`` has a shell.

    The model harness has no shell in tasks such as ``short_answer``.
    """
    return mixed_pack(root, ("terminal_task",)) if program == PLAIN_MODEL else short_answers(root)


def answering_all() -> TextBook:
    """Return a book in which a model without a shell correctly answers each task that needs no shell."""
    known = {question: reply for pack, row in _rows().values() for question, reply in replies_of(pack, [row])}
    return lambda talk: next((Say(reply) for text, reply in known.items() if text in talk.question), Say("I pass."))


def _rows() -> dict[str, tuple[str, dict[str, Any]]]:
    """Return the first row of each family in the example packs, with the name of its pack."""
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for pack in (TEXT, CODE, TERMINAL, REPOSITORY):
        for row in rows_of(pack):
            family = row.get("family") or _OWN_FAMILY[pack]
            environment = {**_ENVIRONMENTS.get(pack, {}), **row.get("environment", {})}
            found.setdefault(family, (pack, {**row, "family": family, "environment": environment}))
    return {family: found[family] for family in FAMILIES}
