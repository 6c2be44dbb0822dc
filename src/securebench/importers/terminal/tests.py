"""A task's tests, adapted to their path in the checker's sandbox, and the test names that a run must report."""

from __future__ import annotations

import ast
import re
import warnings
from typing import TYPE_CHECKING, Final

from securebench.importers.terminal.files import TaskFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_TESTS_PATH: Final = re.compile(rb"(?<![\w./~$}-])/tests(?=[/\"'\s)\],:;]|$)")
_MODULE: Final = re.compile(r"(?:.*/)?(?:test_[^/]*|[^/]*_test)\.py")


def moved(tests: Mapping[str, TaskFile], to: str) -> tuple[dict[str, TaskFile], list[str]]:
    """Return the tests with ``/tests`` replaced by ``to`` in their text, and the paths of the changed files."""
    made: dict[str, TaskFile] = {}
    changed = []
    for path, file in tests.items():
        data, count = _TESTS_PATH.subn(to.encode(), file.data) if b"\0" not in file.data else (file.data, 0)
        made[path] = TaskFile(data, file.executable)
        changed += [path] if count else []
    return made, changed


def modules(tests: Mapping[str, TaskFile], chosen: Sequence[str]) -> list[str]:
    """Return the paths of test modules at or below the ``chosen`` paths (``.`` is everything)."""
    return [path for path in tests if path in chosen or (_MODULE.fullmatch(path) and _is_below(path, chosen))]


def _is_below(path: str, directories: Sequence[str]) -> bool:
    return any(one == "." or path.startswith(f"{one}/") for one in directories)


def expected_names(tests: Mapping[str, TaskFile], chosen: Sequence[str]) -> list[str]:
    """Return the test names in the modules at or below the ``chosen`` paths. The modules are parsed, not run.

    A name has the form ``name`` or ``Class::name``. Raises ``ValueError`` for a module that is not valid Python.
    """
    names = [name for path in modules(tests, chosen) for name in _names(path, tests[path].data)]
    return list(dict.fromkeys(names))


def absolute_paths(tests: Mapping[str, TaskFile], inside: Sequence[str]) -> list[str]:
    """Return the absolute paths in the tests' Python files, except those at or below the directories ``inside``."""
    found: dict[str, None] = {}
    for path, file in tests.items():
        if path.endswith(".py"):
            for match in re.findall(rb"[\"'](/[A-Za-z0-9_.][A-Za-z0-9_./-]*)", file.data):
                found[match.decode()] = None
    return [path for path in found if not any(path == one or path.startswith(f"{one}/") for one in inside)]


def _names(path: str, source: bytes) -> Iterator[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            module = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise ValueError(f"{path} is not valid Python: {type(error).__name__}") from None
    for node in module.body:
        if _is_test(node):
            yield node.name  # type: ignore[attr-defined]
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            yield from (f"{node.name}::{inner.name}" for inner in node.body if _is_test(inner))  # type: ignore[attr-defined]


def _is_test(node: ast.stmt) -> bool:
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test")
