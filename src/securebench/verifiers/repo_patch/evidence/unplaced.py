"""Expected ids that do not say where their test is: the first line of a docstring, or a function's name.

Code under test can add a test of its own that is called the same, and remove the task's. Such an id therefore counts
only if one of the tests passed that the task's own files define under it.
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
    """Return, for each of ``ids`` that says no place, where the ``files``, by path and content, define its test.

    A test of a class that may be no case itself is left out: where it runs, only Python knows.
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
    """Yield what a test may be called in an id, and its place."""
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
    """Return whether a name is deleted or assigned again: what it stood for may not run."""
    return isinstance(name.ctx, ast.Store | ast.Del)
