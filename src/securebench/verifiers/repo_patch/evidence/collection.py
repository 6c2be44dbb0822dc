"""Which tests there are without the candidate's change, where a task does not name the ones it expects.

A package that the tests import can make tests vanish from a module. The tests are collected first from the tree
without the change, in a sandbox of their own. A file that cannot be loaded there, as what it tests is missing, is
read instead: its tests by pytest's usual names, unless the repository has others.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from securebench.python_text import parse_python
from securebench.verifiers.repo_patch.evidence.adapter import Place

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from securebench.verifiers.repo_patch.evidence.adapter import Adapter
    from securebench.verifiers.repo_patch.evidence.channel import Reported

OTHER_NAMES: Final = re.compile(rb"python_(?:functions|classes)")
"""What a configuration file has in it that gives tests other names."""


@dataclass(frozen=True, slots=True)
class Required:
    """Where tests are defined that must run. ``state`` says how they were found: see ``records.md``."""

    places: frozenset[Place]
    state: str

    def missing(self, ran: Iterable[Place]) -> int:
        """Return how many of them did not run."""
        return len(self.places - set(ran))


def required(reported: Reported | None, files: Mapping[str, bytes], adapter: Adapter, *, usual_names: bool) -> Required:
    """Return the tests that must run, from what was ``reported`` without the change, and else from ``files``.

    ``files`` are the sources of the task's test files by their paths; ``usual_names``: whether tests in them have
    the names that they usually have.
    """
    known = {place for test in (reported.collected if reported else ()) if (place := adapter.place(test)) is not None}
    unloaded = None if reported is None else [name.partition("::")[0] for name in reported.unloaded]
    if unloaded == []:
        return Required(frozenset(known), "complete")
    if usual_names and not adapter.narrows:
        for path, content in files.items():
            if unloaded is None or any(path.endswith("/" + name) or path == name for name in unloaded):
                known |= set(_read(adapter.stem(path), content))
    return Required(frozenset(known), "read" if reported is None else "partial")


def _read(stem: str, content: bytes) -> Iterator[Place]:
    """Yield the tests that any run of the file has: plain functions, and methods of plain classes."""
    try:
        body = parse_python(content).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and not node.decorator_list:
            yield Place(stem, (), node.name)
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test") and not node.decorator_list:
            inner = [method for method in node.body if isinstance(method, ast.FunctionDef)]
            if node.bases or any(method.name == "__init__" for method in inner):
                continue
            for method in inner:
                if method.name.startswith("test_") and not method.decorator_list:
                    yield Place(stem, (node.name,), method.name)
