"""HumanEval, imported: canonical solutions pass, empty candidates fail, cheats never pass."""

from __future__ import annotations

import ast
import builtins
import json
import symtable
from typing import TYPE_CHECKING

import pytest

from benchmarks.authors_data import data_folder, humaneval_document
from benchmarks.code_cheats import ANYWHERE, TEMPLATES, cheat
from benchmarks.packs import BENCHMARKS, judged
from securebench.benchmark_compiler import compile_benchmark_pack
from securebench.benchmark_pack import load_benchmark_pack
from securebench.errors import FailureReason
from securebench.importers.humaneval import BENCHMARK, MANIFEST, humaneval_rows
from securebench.importers.lock import load_lock
from securebench.importers.pack_output import write_pack

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from securebench.importers.row import ImportedRow
    from securebench.sandboxes.base import SandboxDriver
    from securebench.tasks import SecureBenchTask

MINI = [f"HumanEval/{number}" for number in range(10)]
HELPED = ["HumanEval/32", "HumanEval/38", "HumanEval/50"]
"""Tasks whose tests use a helper function that the prompt defines."""


@pytest.fixture(scope="module")
def rows() -> list[ImportedRow]:
    """Return the rows of the authors' file."""
    return humaneval_rows(humaneval_document(), "HumanEval.jsonl")


@pytest.fixture(scope="module")
def tasks(rows: list[ImportedRow], tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, SecureBenchTask]:
    """Return all tasks, compiled from a pack that was written and loaded."""
    directory = tmp_path_factory.mktemp("humaneval")
    written = write_pack(directory, rows, MANIFEST, force=False).tasks
    pack = load_benchmark_pack(directory / "manifest.yaml", written)
    return {task.id: task for task in compile_benchmark_pack(pack)}


def _entry_point(task: SecureBenchTask) -> str:
    return str(task.metadata["entry_point"])


def test_the_recipe_is_what_its_lock_says(rows: list[ImportedRow]) -> None:
    """The lock of humaneval-mini lists HumanEval/0 to 9, each with the digest of the authors' record."""
    lock = load_lock(BENCHMARKS / "humaneval-mini" / "lock.json", BENCHMARK)
    assert [row.id for row in lock.rows_in(rows)] == MINI


def test_the_import_is_complete(rows: list[ImportedRow]) -> None:
    """All 164 tasks are imported with the authors' ids."""
    assert [row.id for row in rows] == [f"HumanEval/{number}" for number in range(164)]


def test_tests_take_nothing_of_the_candidate_but_the_entry_point(tasks: Mapping[str, SecureBenchTask]) -> None:
    """The tests define or import every name that they use, except builtins and the entry point."""
    for task in tasks.values():
        code = _tests_of(task)
        free = _free_names(symtable.symtable(code, "tests", "exec")) - set(dir(builtins))
        assert free == {_entry_point(task)}, task.id


def test_the_agent_never_sees_tests_or_solution(tasks: Mapping[str, SecureBenchTask]) -> None:
    """E14: the agent's payload contains neither the authors' tests nor the body of the canonical solution.

    A body of less than 40 characters is not looked for.
    """
    for task in tasks.values():
        shown = json.dumps(task.agent_payload())
        assert set(task.agent_payload()) == {"prompt", "language", "starter_code"}
        assert "def check(" not in shown
        body = str(task.resources["canonical_solution"].value).removeprefix(str(task.agent_payload()["starter_code"]))
        assert json.dumps(body.strip())[1:-1] not in shown or len(body.strip()) < 40


@pytest.mark.parametrize("task_id", HELPED)
def test_helpers_of_the_prompt_are_the_tests_own(task_id: str, tasks: Mapping[str, SecureBenchTask]) -> None:
    """Helper functions that the prompt defines are also defined in the tests, before ``check``."""
    task = tasks[task_id]
    prompt = ast.parse(str(task.resources["starter_code"].value))
    helpers = {node.name for node in prompt.body if isinstance(node, ast.FunctionDef)} - {_entry_point(task)}
    defined = [node.name for node in ast.parse(_tests_of(task)).body if isinstance(node, ast.FunctionDef)]
    assert helpers
    assert set(defined) == helpers | {"check"}
    assert defined[-1] == "check"


@pytest.mark.parametrize("task_id", MINI + HELPED)
def test_the_canonical_solution_passes_and_nothing_fails(
    task_id: str, tasks: Mapping[str, SecureBenchTask], driver: SandboxDriver, tmp_path: Path
) -> None:
    """The authors' solution passes; an empty candidate and the bare prompt do not."""
    task = tasks[task_id]
    solution = str(task.resources["canonical_solution"].value)
    result = judged(task, solution, driver, tmp_path)
    assert result.reason is None, result.message
    assert judged(task, "", driver, tmp_path).reason is FailureReason.CANDIDATE_EMPTY
    assert judged(task, str(task.resources["starter_code"].value), driver, tmp_path).reason is not None


@pytest.mark.parametrize(
    ("task_id", "attempt"),
    [(task_id, attempt) for attempt in TEMPLATES for task_id in MINI if task_id == MINI[4] or attempt in ANYWHERE],
)
def test_a_cheat_never_passes(
    task_id: str, attempt: str, tasks: Mapping[str, SecureBenchTask], driver: SandboxDriver, tmp_path: Path
) -> None:
    """Group B: a program that does not solve the task does not pass the authors' tests."""
    task = tasks[task_id]
    assert judged(task, cheat(attempt, _entry_point(task)), driver, tmp_path).reason is not None


def test_a_candidate_cannot_replace_a_helper_of_the_tests(
    tasks: Mapping[str, SecureBenchTask], driver: SandboxDriver, tmp_path: Path
) -> None:
    """HumanEval/32: a candidate whose own `poly` always returns 0 fails, because the tests use their own `poly`."""
    cheating = "def poly(xs, x):\n    return 0.0\n\ndef find_zero(xs):\n    return 0.0\n"
    assert judged(tasks["HumanEval/32"], cheating, driver, tmp_path).reason is FailureReason.TESTS_FAILED


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_all_canonical_solutions_pass_and_no_empty_candidate_does(
    tasks: Mapping[str, SecureBenchTask], driver: SandboxDriver, tmp_path: Path
) -> None:
    """In the whole data set, the authors' solutions pass and empty candidates fail."""
    data_folder()
    solved = {name: str(task.resources["canonical_solution"].value) for name, task in tasks.items()}
    failed = [name for name in tasks if judged(tasks[name], solved[name], driver, tmp_path).reason is not None]
    passed = [name for name in tasks if judged(tasks[name], "", driver, tmp_path).reason is None]
    assert (len(tasks), failed, passed) == (164, [], [])


def _tests_of(task: SecureBenchTask) -> str:
    tests = task.resources["tests"].value
    assert isinstance(tests, dict)
    return str(tests["code"])


def _free_names(table: symtable.SymbolTable) -> set[str]:
    """Return the names that a module uses without defining or importing them."""
    module = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    tables, used = [table], set()
    while tables:
        current = tables.pop()
        tables += current.get_children()
        top = current.get_type() == "module"
        used |= {
            symbol.get_name()
            for symbol in current.get_symbols()
            if symbol.is_referenced() and (symbol.is_global() or (top and not symbol.is_assigned()))
        }
    return used - module
