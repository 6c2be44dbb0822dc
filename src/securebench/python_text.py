"""Thread-safe parsing of Python source code."""

from __future__ import annotations

import ast
import threading
from typing import Final

_LOCK: Final = threading.Lock()


def parse_python(source: str | bytes) -> ast.Module:
    """Return the syntax tree of a module, as ``ast.parse`` does; safe to call from several threads.

    Raises ``SyntaxError`` or ``ValueError`` for what is not Python, and ``RecursionError`` or ``MemoryError`` for what
    is nested too deep.

    CPython 3.11 counts the depth of a tree in a variable that all threads share. When garbage collection interrupts
    one thread while a tree is built, and another thread parses meanwhile, the first thread fails with ``SystemError:
    AST constructor recursion depth mismatch``.
    """
    with _LOCK:
        return ast.parse(source)
