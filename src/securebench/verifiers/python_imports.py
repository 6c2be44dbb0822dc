"""Finds the modules that a Python source always imports, without running it."""

from __future__ import annotations

import ast
import sys
from typing import TYPE_CHECKING

from securebench.python_text import parse_python

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator


def needed_modules(source: str | bytes) -> list[str]:
    """Return the top-level modules that ``source`` always imports, without those of the standard library.

    Imports in functions, conditions and ``try`` statements may be optional and are left out. Returns an empty list if
    ``source`` is not valid Python, or may change the import system.
    """
    try:
        tree = parse_python(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    names = {name.partition(".")[0] for statement in tree.body for name in _imported(statement)}
    third_party = names - sys.stdlib_module_names - {"__future__"}
    if not third_party or any(_touches_imports(node) for node in ast.walk(tree)):
        return []
    return sorted(third_party)


def first_needed_module(source: str | bytes, own: Collection[str]) -> str | None:
    """Return the first third-party module that ``source`` imports, if only standard library imports run before it.

    Otherwise, returns ``None``, because other code that runs earlier could change where modules are found. ``own`` are
    the names of the task's own modules: an import of one of them counts as other code.
    """
    try:
        tree = parse_python(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    for number, statement in enumerate(tree.body):
        names = [name.partition(".")[0] for name in _imported(statement)]
        is_docstring = number == 0 and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if not names and not is_docstring:
            return None
        for name in names:
            if name in own:
                return None
            if name not in sys.stdlib_module_names and name != "__future__":
                return name
    return None


def _imported(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.Import):
        yield from (alias.name for alias in statement.names)
    elif isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
        yield statement.module


def _touches_imports(node: ast.AST) -> bool:
    """Return whether ``node`` may use ``sys``, ``site`` or ``importlib`` to change where modules are found."""
    if isinstance(node, ast.Attribute):
        return node.attr in {"path_hooks", "meta_path", "modules"} or (
            node.attr == "path" and isinstance(node.value, ast.Name) and node.value.id == "sys"
        )
    if isinstance(node, ast.ImportFrom):
        return node.module in {"sys", "site"} or (node.module or "").startswith("importlib")
    return isinstance(node, ast.Import) and any(
        alias.name.partition(".")[0] in {"site", "importlib"} or (alias.name == "sys" and alias.asname)
        for alias in node.names
    )
