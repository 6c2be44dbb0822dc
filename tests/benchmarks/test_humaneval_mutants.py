"""HumanEval, every row: canonical solutions pass, and mutants get the same verdict as in plain Python."""

from __future__ import annotations

import ast
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.authors_data import data_folder, humaneval_document
from benchmarks.packs import judged
from securebench.benchmark_compiler import compile_benchmark_pack
from securebench.benchmark_pack import load_benchmark_pack
from securebench.importers.humaneval import MANIFEST, humaneval_rows
from securebench.importers.pack_output import write_pack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from securebench.sandboxes.oci import OciDriver
    from securebench.tasks import SecureBenchTask

MUTANTS = 3
"""The maximum number of mutants that are judged for each row. They are spread over the code of its solution."""
PLAIN_SECONDS = 5
_OTHER: dict[Any, Any] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}
_OTHER |= {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Mod: ast.FloorDiv,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


def mutants(source: str) -> Iterator[str]:
    """Yield ``source`` with one operator, or one whole number, replaced."""
    for index in range(len(list(ast.walk(ast.parse(source))))):
        tree = ast.parse(source)
        if _mutate(list(ast.walk(tree))[index]):
            yield ast.unparse(tree)


def _mutate(node: Any) -> bool:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        node.value += 1
    elif isinstance(node, (ast.BinOp, ast.BoolOp)) and type(node.op) in _OTHER:
        node.op = _OTHER[type(node.op)]()
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in _OTHER:
        node.ops[0] = _OTHER[type(node.ops[0])]()
    else:
        return False
    return True


def passes_in_plain_python(solution: str, tests: str) -> bool | None:
    """Return whether ``tests`` pass with all names of ``solution``, or ``None`` if they take too long.

    The tests get a copy of these names. Some rows have a helper of the same name in the tests and in the solution, and
    the solution must keep its own.
    """
    program = "import sys\nown = {}\nexec(sys.argv[1], own)\nexec(sys.argv[2], dict(own))\n"
    command = [sys.executable, "-I", "-c", program, solution, tests]
    try:
        return subprocess.run(command, capture_output=True, check=False, timeout=PLAIN_SECONDS).returncode == 0
    except subprocess.TimeoutExpired:
        return None


def test_a_mutant_differs_in_one_place() -> None:
    """All mutants of a program are different, and ``passes_in_plain_python`` tells a mutant from the original."""
    source = "def f(x):\n    return x + 1 if x > 0 else 0\n"
    made = list(mutants(source))
    assert len({source, *made}) == 1 + len(made) == 6
    tests = "def helper(): return 0\nassert f(0) == 0"
    assert passes_in_plain_python(source, tests) is True
    assert passes_in_plain_python(made[0], tests) is False


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_every_row_agrees_with_plain_python(
    oci_driver: OciDriver, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Canonical solutions pass. The chosen mutants of each row get the same verdict as in plain Python.

    A mutant that takes too long in plain Python is left out.
    """
    data_folder()
    written = write_pack(tmp_path, humaneval_rows(humaneval_document(), "HumanEval.jsonl"), MANIFEST, force=False).tasks
    tasks = compile_benchmark_pack(load_benchmark_pack(tmp_path / "manifest.yaml", written))
    failed, differing, counts = [], [], {True: 0, False: 0}
    for task in tasks:
        solution = str(task.resources["canonical_solution"].value)
        if not judged(task, solution, oci_driver, tmp_path).passed:
            failed.append(task.id)
        every = list(mutants(solution))
        for mutant in every[:: max(1, len(every) // MUTANTS)][:MUTANTS]:
            expected = passes_in_plain_python(mutant, _tests_of(task))
            if expected is not None:
                counts[expected] += 1
                if judged(task, mutant, oci_driver, tmp_path).passed is not expected:
                    differing.append((task.id, expected, mutant))
    record_property("mutants", f"{counts[True]} pass in plain Python, {counts[False]} fail")
    assert (len(tasks), failed, differing) == (164, [], [])
    assert min(counts.values()) > 0


def _tests_of(task: SecureBenchTask) -> str:
    tests = task.resources["tests"].value
    assert isinstance(tests, dict)
    return str(tests["code"])
