"""A module's source, and edits that keep all other bytes unchanged."""

from __future__ import annotations

import ast
import builtins
import keyword
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeAlias

from securebench.python_text import parse_python

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAX_SOURCE_BYTES = 1024 * 1024
Function: TypeAlias = "ast.FunctionDef | ast.AsyncFunctionDef"
_WORD = re.compile(r"[a-z]{3,}|[A-Z][a-z]{2,}")
_NUMBER = re.compile(r"(?<![\w.])\d{1,12}(?![\w.])")
_MEANINGFUL_TEXT: Final = """
self test tests pytest unittest setup teardown load skip xfail slow fast flaky long heavy network internet online
offline live remote integration benchmark performance external gpu cuda
"""
_MEANINGFUL: Final = frozenset((*keyword.kwlist, *(name.lower() for name in dir(builtins)), *_MEANINGFUL_TEXT.split()))
"""Words that may make Python, a test runner or a ``conftest.py`` treat a test differently if its name contains them."""

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


@dataclass(frozen=True, slots=True, order=True)
class Edit:
    """Replaces the bytes from ``start`` to ``end`` with ``text``."""

    start: int
    end: int
    text: str


class ModuleSource:
    """The source of a module, for editing.

    Raises ``ValueError``, ``SyntaxError``, ``RecursionError`` or ``MemoryError`` if this Python cannot parse the
    module, or if the module cannot be edited.
    """

    def __init__(self, content: bytes) -> None:
        if len(content) > MAX_SOURCE_BYTES or content.startswith(b"\xef\xbb\xbf"):
            raise ValueError("the module is too long or begins with a byte order mark")
        self.text = content.decode("utf-8")
        if "\r" in self.text.replace("\r\n", "\n"):
            raise ValueError("the module contains a carriage return without a line feed")
        self.content = content
        self.module = parse_python(content)
        self.newline = "\r\n" if "\r\n" in self.text else "\n"
        self._starts = [0]
        for line in content.splitlines(keepends=True) if b"\f" not in content else content.split(b"\n"):
            self._starts.append(self._starts[-1] + len(line) + (b"\f" in content))

    @cached_property
    def words(self) -> list[str]:
        """The words in the module's text, in lower case. The words in ``_MEANINGFUL`` are left out."""
        return [word for word in dict.fromkeys(map(str.lower, _WORD.findall(self.text))) if word not in _MEANINGFUL]

    @cached_property
    def numbers(self) -> list[int]:
        """The integers in the module."""
        return [int(number) for number in _NUMBER.findall(self.text)]

    def line(self, number: int) -> int:
        """Return the byte offset at which line ``number``, counted from 1, begins.

        For a number beyond the last line, return the offset of the end of the content.
        """
        return min(self._starts[min(number, len(self._starts)) - 1], len(self.content))

    def span(self, node: ast.expr) -> tuple[int, int]:
        """Return the start and end offsets of ``node``."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.line(node.lineno) + node.col_offset, self.line(node.end_lineno) + node.end_col_offset

    def segment(self, node: ast.expr) -> str:
        """Return the text of ``node``."""
        start, end = self.span(node)
        return self.content[start:end].decode("utf-8")

    def block(self, function: Function) -> tuple[int, int]:
        """Return the start and end offsets of ``function`` with its decorators, as whole lines."""
        first = min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])
        assert function.end_lineno is not None
        return self.line(first), self.line(function.end_lineno + 1)

    def name_edit(self, function: Function, name: str) -> Edit:
        """Return the edit that renames ``function`` at its definition."""
        start = self.line(function.lineno) + function.col_offset
        at = self.content.index(function.name.encode(), self.content.index(b"def", start) + 3)
        return Edit(at, at + len(function.name.encode()), name)

    def copy(self, block: tuple[int, int], edits: Iterable[Edit]) -> bytes:
        """Return the text of ``block`` with ``edits`` applied. It ends with a line feed."""
        start, end = block
        text = self.content[start:end]
        for edit in sorted(edits, reverse=True):
            text = text[: edit.start - start] + edit.text.encode() + text[edit.end - start :]
        return text if text.endswith(b"\n") else text + self.newline.encode()


def own_nodes(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield ``nodes`` and their descendants, without the bodies of nested functions and classes."""
    for node in nodes:
        yield node
        if not isinstance(node, _SCOPES):
            yield from own_nodes(ast.iter_child_nodes(node))


def called_name(node: ast.AST) -> str:
    """Return the last part of a name or, for a call, of the function's name: ``raises`` for ``pytest.raises(X)``."""
    if isinstance(node, ast.Call):
        node = node.func
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def definitely_run(statements: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that every passing run of a test has completed.

    Bodies that may not run, such as those of ``if``, are left out, and so is everything after a possible ``return``.
    """
    for statement in statements:
        if any(isinstance(node, ast.Return | ast.Break | ast.Continue) for node in own_nodes([statement])):
            return
        yield statement
        if isinstance(statement, ast.With | ast.AsyncWith):
            if all(called_name(item.context_expr) in _TRANSPARENT for item in statement.items):
                yield from definitely_run(statement.body)
        elif (isinstance(statement, ast.For) and _has_items(statement.iter)) or (
            isinstance(statement, ast.Try) and not statement.handlers
        ):
            yield from definitely_run(statement.body)


_TRANSPARENT_TEXT: Final = """
subTest warns assertWarns assertWarnsRegex catch_warnings assertLogs at_level open patch object dict context
disabled localcontext errstate TemporaryDirectory NamedTemporaryFile TemporaryFile chdir override_settings
assertNumQueries option_context assert_produces_warning StringIO BytesIO set_context isolated_filesystem
"""
_TRANSPARENT = frozenset(_TRANSPARENT_TEXT.split())
"""Context managers that do not suppress exceptions. Other context managers might."""


def _has_items(node: ast.expr) -> bool:
    """Return whether a loop over ``node`` certainly runs at least once."""
    if isinstance(node, ast.List | ast.Tuple):
        return any(not isinstance(item, ast.Starred) for item in node.elts)
    if isinstance(node, ast.Call) and called_name(node) == "range" and len(node.args) == 1:
        count = node.args[0]
        return isinstance(count, ast.Constant) and type(count.value) is int and count.value > 0
    return False


_HARMLESS: Final = re.compile(r"\w*(?:assert|check|verify|expect|raises|warns|fail)\w*|eq_|ok_", re.IGNORECASE)


def has_effects_after(function: Function, statement: ast.stmt) -> bool:
    """Return whether ``function`` may change state outside itself after ``statement``.

    Two kinds of statements count as such a change: calls that are not assertions, and statements that assign or delete
    a part of an object (``a.b = 1``, ``del a[0]``). A statement is ignored if it is in a ``finally`` block, or if its
    first name (``a`` in ``a.b()``) is a variable that the function assigns. Calls whose result is assigned are ignored,
    too: nearly all tests compute values in this way.
    """
    own = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    end = (statement.end_lineno or 0, statement.end_col_offset or 0)
    cleaning = {
        id(inner)
        for node in own_nodes(function.body)
        if isinstance(node, ast.Try)
        for last in node.finalbody  # always runs
        for inner in ast.walk(last)
    }
    later = (
        node
        for node in own_nodes(function.body)
        if isinstance(node, ast.stmt) and (node.lineno, node.col_offset) >= end and id(node) not in cleaning
    )
    return any(_root(target) not in own for node in later for target in _changed(node))


def _changed(node: ast.stmt) -> list[ast.expr]:
    """Return the expressions whose objects a statement may change. Assignments to local names are left out."""
    if isinstance(node, ast.Expr):
        called = node.value.value if isinstance(node.value, ast.Await) else node.value
        is_effect = isinstance(called, ast.Call) and not _HARMLESS.fullmatch(called_name(called))
        return [called] if is_effect else []
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign | ast.Delete):
        targets = node.targets
    elif isinstance(node, ast.AugAssign) or (isinstance(node, ast.AnnAssign) and node.value is not None):
        targets = [node.target]
    return [target for target in targets if isinstance(target, ast.Attribute | ast.Subscript)]


def _root(node: ast.expr) -> str:
    """Return the first name in ``node``: ``a`` of ``a.b[0].c``."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""
