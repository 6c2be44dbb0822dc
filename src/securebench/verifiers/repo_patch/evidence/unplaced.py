"""Expected ids that do not say where their test is: the first line of a docstring, or a function's name.

Code under test can remove the task's test and add another one with the same name. So such an id counts only if a test
with this name passed that the task's own files define.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from securebench.python_text import parse_python
from securebench.verifiers.repo_patch.evidence.adapter import CasePlace
from securebench.verifiers.repo_patch.evidence.source import called_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from securebench.verifiers.repo_patch.evidence.adapter import Adapter


def places_of(
    ids: Iterable[str], files: Iterable[tuple[bytes, bytes]], adapter: Adapter
) -> dict[str, frozenset[CasePlace]]:
    """Return where the ``files`` (content by path) define the tests of each of ``ids`` that has no place.

    Tests in classes that may not be test cases themselves are left out: only Python knows which class runs them.
    """
    wanted = {test for test in ids if adapter.place(test) is None}
    found: dict[str, set[CasePlace]] = {}
    for path, content in files if wanted else ():
        stem = adapter.stem(path.decode("utf-8", "replace"))
        for name, place in _tests(content, stem, adapter):
            if name in wanted:
                found.setdefault(name, set()).add(place)
    return {name: frozenset(places) for name, places in found.items()}


def _tests(content: bytes, stem: str, adapter: Adapter) -> Iterator[tuple[str, CasePlace]]:
    """Yield the names that ids may use for a test, and its place."""
    try:
        body = parse_python(content).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    gone = {name.id for one in body for name in ast.walk(one) if isinstance(name, ast.Name) and _is_bound(name)}
    for node in body:
        if isinstance(node, ast.FunctionDef) and adapter.functions and node.name not in gone:
            yield node.name, CasePlace(stem, (), node.name)
        is_case = isinstance(node, ast.ClassDef) and any(called_name(base).endswith("TestCase") for base in node.bases)
        if isinstance(node, ast.ClassDef) and is_case and node.name not in gone:
            for test in node.body:
                text = ast.get_docstring(test) if isinstance(test, ast.FunctionDef | ast.AsyncFunctionDef) else None
                if isinstance(test, ast.FunctionDef | ast.AsyncFunctionDef) and text:
                    yield text.strip().split("\n")[0].strip(), CasePlace(stem, (node.name,), test.name)


def _is_bound(name: ast.Name) -> bool:
    """Return whether a name is deleted or reassigned, because its first meaning may not run."""
    return isinstance(name.ctx, ast.Store | ast.Del)
