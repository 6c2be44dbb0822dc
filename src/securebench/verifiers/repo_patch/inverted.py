"""Copies of a task's own tests that pass only if an object is equal to what it cannot be equal to.

Against objects that claim to be equal to everything, a test like ``assert double(2) == 4`` says nothing. Its copy asks
whether ``double(2)`` is also equal to a value that it is not, and passes if so; else it fails, as it must.
"""

from __future__ import annotations

import ast
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_TESTS: Final = 3
"""Tests copied of one file."""
MAX_SOURCE_BYTES: Final = 512 * 1024

_PROBE: Final = '''
class {other}:
    """Equal to itself alone."""


def {probe}(*values):
    from unittest import mock

    for value, beside in zip(values, reversed(values)):
        if type(value) is type(mock.ANY) or type(value).__module__ == __name__:
            continue
        for wrong in ({other}(), {differ}(beside)):
            try:
                if bool(value == wrong):
                    return True
            except Exception:
                pass
    return False


def {differ}(value):
    if type(value) in (int, float) and value * 2 + 1001 != value:
        return value * 2 + 1001
    if type(value) in (str, bytes) and value:
        return value + value[:1]
    return {other}()
'''
_EQUALS: Final = ("assertEqual", "assertEquals")


@dataclass(slots=True)
class Copied:
    """The source of a module, and the names of its tests (``CLASS::TEST`` where they lie in one)."""

    source: bytes
    tests: list[str] = field(default_factory=list)


def inverted(content: bytes, wanted: frozenset[str], names: Iterator[str]) -> Copied | None:
    """Return a copy of the module ``content`` with some of its tests, ``wanted`` first, turned round and renamed.

    ``None`` where nothing in it can be: it is no Python that this Python reads, or compares nothing.
    """
    if len(content) > MAX_SOURCE_BYTES:
        return None
    try:
        module = ast.parse(content)
        chosen = _chosen(module, wanted)
        if not chosen:
            return None
        helpers = {name: f"_{next(names)}" for name in ("other", "probe", "differ")}
        tests = _rebuild(module, chosen, helpers["probe"], names)
        source = ast.unparse(module) + "\n\n" + _PROBE.format(**helpers)
        return Copied(source.encode("utf-8"), tests)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _chosen(module: ast.Module, wanted: frozenset[str]) -> set[int]:
    """Return which tests are copied: at random, but wanted ones before others."""
    found = [test for _, test in _tests(module) if _comparisons(test)]
    secrets.SystemRandom().shuffle(found)
    found.sort(key=lambda test: test.name not in wanted)
    return {id(test) for test in found[:MAX_TESTS]}


def _tests(module: ast.Module) -> Iterator[tuple[ast.Module | ast.ClassDef, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield each test, with what it lies in."""
    for holder in _holders(module):
        for node in holder.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
                yield holder, node


def _holders(module: ast.Module) -> list[ast.Module | ast.ClassDef]:
    return [module, *(node for node in module.body if isinstance(node, ast.ClassDef))]


def _rebuild(module: ast.Module, chosen: set[int], probe: str, names: Iterator[str]) -> list[str]:
    """Leave only the chosen tests in ``module``, turned round, and return their new names."""
    tests: list[str] = []
    for holder, test in list(_tests(module)):
        if id(test) not in chosen:
            holder.body.remove(test)
            continue
        test.name = f"test_{next(names)}"
        test.body = [*_Turned(probe).body(test.body), *ast.parse("raise AssertionError").body]
        tests.append(f"{holder.name}::{test.name}" if isinstance(holder, ast.ClassDef) else test.name)
    for holder in _holders(module):
        holder.body = holder.body or [ast.Pass()]
    ast.fix_missing_locations(module)
    return tests


def _comparisons(test: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return how many comparisons can be turned round; none of a test that yields."""
    turned = _Turned("")
    body = turned.body(ast.parse(ast.unparse(test)).body[0].body)  # type: ignore[attr-defined] # a function's
    yields = any(isinstance(node, ast.Yield | ast.YieldFrom) for statement in body for node in ast.walk(statement))
    return 0 if yields else turned.count


class _Turned(ast.NodeTransformer):
    """Makes ``if probe(a, b): return`` of ``assert a == b``, and drops what other assertions ask."""

    def __init__(self, probe: str) -> None:
        self._probe = probe
        self.count = 0

    def body(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        """Return ``statements`` turned round."""
        return [self.visit(statement) for statement in statements]

    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        """Turn an assertion."""
        test = node.test
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
            return self._asked(test.left, test.comparators[0])
        return ast.Expr(test)

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        """Turn ``self.assertEqual(a, b)``."""
        call = node.value
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in _EQUALS:
            plain = [value for value in call.args if not isinstance(value, ast.Starred)]
            if len(plain) == len(call.args) >= 2:  # noqa: PLR2004 - two sides
                return self._asked(plain[0], plain[1])
        return node

    def visit_Return(self, _node: ast.Return) -> ast.stmt:
        """Let the test fail where it would have ended early: only what is asked may end it well."""
        return ast.parse("raise AssertionError").body[0]

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt:
        """Leave inner functions: a ``return`` in them ends no test."""
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.stmt:
        """Leave inner functions."""
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.stmt:
        """Leave inner classes."""
        return node

    def _asked(self, left: ast.expr, right: ast.expr) -> ast.stmt:
        self.count += 1
        called = ast.Call(ast.Name(self._probe, ast.Load()), [left, right], [])
        return ast.If(called, [ast.Return()], [])
