"""Find the tests that exist without the candidate's change, for a task that does not name the expected ones.

If the tests import code that the candidate changed, this code can remove tests from test modules. So the tests are
first collected from the tree without the change, in a separate sandbox. If a test file cannot be loaded there, for
example because the tested code is missing, its source is searched for tests with the runner's usual names. It is not
searched if the repository configures other names, or if the command selects single tests.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from securebench.python_text import parse_python
from securebench.verifiers.repo_patch.evidence.adapter import CasePlace
from securebench.verifiers.repo_patch.evidence.source import called_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from securebench.verifiers.repo_patch.evidence.adapter import Adapter
    from securebench.verifiers.repo_patch.evidence.channel import ReportedTests

_CASES: Final = frozenset(("TestCase", "SimpleTestCase", "TransactionTestCase"))
"""Classes of unittest and Django whose direct subclasses are test cases."""


@dataclass(frozen=True, slots=True)
class Required:
    """Where the tests that must pass are defined. ``state`` says how they were found: see ``records.md``.

    Tests at ``may_skip`` must be reported, but may be reported as skipped or xfailed. They were found by reading source
    that mentions skipping.
    """

    places: frozenset[CasePlace]
    state: str
    may_skip: frozenset[CasePlace] = frozenset()

    def missing(self, ran: Iterable[CasePlace]) -> int:
        """Return how many of ``places`` are not among ``ran``."""
        return len(self.places - set(ran))


def required(
    reported: ReportedTests | None, files: Mapping[str, bytes], adapter: Adapter, *, usual_names: bool
) -> Required:
    """Return the tests that must pass: the collected tests, and the tests in files that were not loaded.

    ``reported`` contains the tests that were collected without the candidate's change. If the tests could not be
    collected, ``reported`` is ``None``, and no file counts as loaded. ``files`` are the sources of the task's test
    files by path. The sources of files that were not loaded are searched for tests, but only if the tests have the
    runner's usual names (``usual_names``) and the command does not select single tests.
    """
    known = {place for test in (reported.collected if reported else ()) if (place := adapter.place(test)) is not None}
    unloaded = None if reported is None else [name.partition("::")[0] for name in reported.unloaded]
    if unloaded == []:
        return Required(frozenset(known), "complete")
    may_skip: set[CasePlace] = set()
    if usual_names and not adapter.narrows:
        for path, content in files.items():
            if unloaded is None or any(path.endswith("/" + name) or path == name for name in unloaded):
                for place, skips in _read(adapter, path, content):
                    may_skip.update({place} - known if skips else ())
                    known.add(place)
    return Required(frozenset(known), "read" if reported is None else "partial", frozenset(may_skip))


def _read(adapter: Adapter, path: str, content: bytes) -> Iterator[tuple[CasePlace, bool]]:
    """Yield the undecorated test functions and methods that every run of the file executes.

    Each is yielded with a flag, which is true if its source, or that of its class, mentions skipping, or if the module
    uses ``pytestmark``.
    """
    try:
        body = parse_python(content).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    stem, changeable, marked = adapter.stem(path), _bound_again(body), b"pytestmark" in content
    for node in body:
        if not isinstance(node, ast.FunctionDef | ast.ClassDef) or node.decorator_list or node.name in changeable:
            continue
        if isinstance(node, ast.ClassDef):
            if _holds_tests(node, adapter):
                skips = marked or "skip" in ast.unparse(node).lower()
                yield from ((CasePlace(stem, (node.name,), method), skips) for method in _tests(node.body))
        elif adapter.functions:
            skips = marked or "skip" in ast.unparse(node).lower()
            yield from ((CasePlace(stem, (), function), skips) for function in _tests([node]))


def _bound_again(body: list[ast.stmt]) -> set[str]:
    """Return the names that a module deletes, assigns or redefines. A test with such a name might not run.

    If the module defines ``load_tests`` or ``disabled``, any of its tests might not run. Then the names of all its
    functions and classes are returned, too.
    """
    stored = {node.id for one in body for node in ast.walk(one) if isinstance(node, ast.Name) and _is_changed(node)}
    defined = [node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    special = {"load_tests", "disabled"} & {*stored, *defined}
    return {*stored, *defined} if special else stored | {name for name in defined if defined.count(name) > 1}


def _is_changed(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store | ast.Del)


def _holds_tests(node: ast.ClassDef, adapter: Adapter) -> bool:
    """Return whether a class is a test case in the runner's own style, judging by its name, bases and constructor.

    In pytest's style, the class has no bases. In the style of unittest and Django, its only base is one of ``_CASES``.
    """
    if any(isinstance(method, ast.FunctionDef) and method.name in ("__init__", "__new__") for method in node.body):
        return False
    if not node.bases and not node.keywords:
        return adapter.plain_classes and node.name.startswith("Test")
    is_case = len(node.bases) == 1 and called_name(node.bases[0]) in _CASES
    return is_case and not node.keywords and not adapter.functions


def _tests(body: list[ast.stmt]) -> Iterator[str]:
    """Yield the names of undecorated functions that are named like tests."""
    for node in body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and not node.decorator_list:
            yield node.name
