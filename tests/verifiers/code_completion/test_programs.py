"""The guests' programs in the form in which they are sent: they run on any interpreter and fit into a pipe."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from securebench.verifiers.code_completion import guest, programs
from securebench.verifiers.code_completion.channel import frame
from securebench.verifiers.code_completion.guest.wire import READY, SOURCE
from securebench.verifiers.code_completion.programs import ARGV, PIPE_BYTES, Program, program_bytes

MARGIN = 2048
"""Bytes of a pipe that must stay free: enough for about 150 more lines in the guests' modules."""


@pytest.mark.parametrize("program", Program)
def test_a_program_fits_into_a_pipe(program: Program) -> None:
    """A program fits into a pipe, so it can be written before its guest reads, and no guest waits for another."""
    free = PIPE_BYTES - len(program_bytes(program))
    assert free >= MARGIN, f"{program} leaves {free} bytes of a pipe: move what few tasks need to a module of _LATER"


@pytest.mark.parametrize("module", sorted(Path(guest.__path__[0]).glob("*.py")), ids=lambda path: path.stem)
def test_a_module_is_sent_without_what_it_does_not_need(module: Path) -> None:
    """A module is sent without docstrings, comments, return types and imports for type checkers.

    Its syntax tree is otherwise unchanged.
    """
    source = module.read_text(encoding="utf-8")
    sent = programs._bare(source)
    assert ast.dump(ast.parse(sent)) == ast.dump(_Stripped().visit(ast.parse(source)))
    assert '"""' not in sent


class _Stripped(ast.NodeTransformer):
    """Transformer that empties docstrings and blocks for type checkers, and removes return types."""

    def visit_If(self, node: ast.If) -> ast.AST:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = [ast.Pass()]
        return self.generic_visit(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.Expr:
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            node.value = ast.Constant("")
        return node


@pytest.mark.parametrize("magic", [None, b"other"])
def test_a_program_runs_on_any_interpreter(magic: bytes | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A guest starts with the host's Python version, and with another version, which compiles the sources."""
    if magic is not None:
        monkeypatch.setattr(programs, "MAGIC_NUMBER", magic)
    sent = program_bytes.__wrapped__(Program.CANDIDATE) + frame(SOURCE, code="def f(): pass").encode()
    argv = [sys.executable, *ARGV[1:]]
    done = subprocess.run(argv, input=sent, capture_output=True, check=False, timeout=30)
    assert frame(READY).encode() in done.stdout


def test_an_interpreter_of_another_version_is_not_given_compiled_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interpreter of another version never loads the code that the host compiled, because that could fail."""
    monkeypatch.setattr(programs, "MAGIC_NUMBER", b"other")
    monkeypatch.setattr(programs, "marshal", _Unreadable())
    sent = program_bytes.__wrapped__(Program.CANDIDATE) + frame(SOURCE, code="def f(): pass").encode()
    argv = [sys.executable, *ARGV[1:]]
    done = subprocess.run(argv, input=sent, capture_output=True, check=False, timeout=30)
    assert frame(READY).encode() in done.stdout


class _Unreadable:
    """Replacement for ``marshal`` that writes compiled code which no interpreter can load."""

    def dumps(self, value: Any, version: int | None = None) -> bytes:
        import marshal

        return b"unreadable" if version is None else marshal.dumps(value, version)


@pytest.mark.parametrize("program", [Program.CANDIDATE, Program.TESTS])
def test_a_guest_imports_nothing_that_takes_long(program: Program) -> None:
    """A guest imports no slow module. One such module adds up to a third to the start time of a task's two guests."""
    reads = program_bytes(program) + frame(SOURCE, code="").encode()
    argv = (sys.executable, "-X", "importtime", *ARGV[1:])
    done = subprocess.run(argv, input=reads, capture_output=True, check=False)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.decode().splitlines()}
    assert "_json" in imported
    assert not imported & {"json", "re", "enum", "collections", "functools", "typing"}
