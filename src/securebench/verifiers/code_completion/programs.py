"""The guests: the programs in the sandboxes. All have the same command line, and get their code over stdin."""

from __future__ import annotations

import functools
import marshal
import re
import threading
import zlib
from enum import StrEnum
from importlib import resources
from importlib.util import MAGIC_NUMBER
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import CodeType

_PACKAGE: Final = "securebench.verifiers.code_completion.guest"
_ANY_VERSION: Final = 2
"""The version of the ``marshal`` format that every Python 3 can read."""

_COMMON: Final = ("text", "wire", "plain", "codec", "peer")
_RUN: Final = ("notes", "names", "run")
_MODULES: Final = {
    "candidate": (*_COMMON, "candidate"),
    "tests": (*_COMMON, *_RUN, "operators", "remote", "tests"),
    "shared": (*_COMMON, *_RUN, "candidate", "shared"),
}
"""The modules that each program executes at its start, in this order."""
_LATER: Final = {
    "candidate": ("errors", "operators", "values", "shapes", "lent"),
    "tests": (
        *("errors", "values", "shapes", "fields", "subclasses", "enums", "twins", "described", "arguments"),
        *("nan", "results", "hints", "flows", "forks"),
    ),
    "shared": ("errors", "operators", "values", "shapes", "lent", "results"),
}
"""Modules that each program loads on first use. Most tasks need few of them. They are compiled in the sandbox."""

_BOOTSTRAP: Final = """\
import marshal, os, sys, zlib
def take(count):
    data = b""
    while len(data) < count:
        part = os.read(0, count - len(data))
        if not part: os._exit(1)
        data += part
    return data
class Later(type(sys)):
    def __getattr__(self, name):
        if self.__dict__.pop("is_empty", False):
            exec(compile(sources()[self.__name__], self.__name__, "exec", dont_inherit=True), self.__dict__)
            return getattr(self, name)
        raise AttributeError(name)
magic, modules, later, texts = marshal.loads(take(int.from_bytes(take(4), "big")))
def sources():
    return dict(marshal.loads(zlib.decompress(texts)))
try: from _frozen_importlib_external import MAGIC_NUMBER
except ImportError: MAGIC_NUMBER = None
if magic == MAGIC_NUMBER:
    modules = marshal.loads(zlib.decompress(modules))
else:
    modules = [(name, compile(source, name, "exec", dont_inherit=True))
               for name, source in sources().items() if name not in later]
for name in later:
    sys.modules[name] = Later(name)
    sys.modules[name].is_empty = True
for name, code in modules:
    module = sys.modules[name] = type(sys)(name)
    exec(code, module.__dict__)
module.main()
"""
"""Reads one length-prefixed program from fd 0, unbuffered, so that the program can read what follows.

If the guest's Python has the same version as the host's, the guest uses the code that the host has compiled, which
saves a fifth of the guest's time. Otherwise the guest compiles the sources. Code and sources are compressed, so that a
program fits into a pipe and sending it never blocks.
"""

ARGV: Final = ("python3", "-I", "-B", "-c", _BOOTSTRAP)
"""The command line: Python ignores the environment, the working directory and user packages, and writes no bytecode."""


_COMPILING: Final = threading.Lock()
"""The first tasks of a run start together. Without the lock, each of their threads would compile the same modules."""
_EFFORT: Final = 7
"""The compression level for ``zlib``. Level 9 takes six times as long, in every run, and saves one percent."""
_INDENT: Final = 4
_QUOTES: Final = '"""'
_COMMENT: Final = re.compile(r"""(^|  )#[^"']*$""")
_RETURNS: Final = re.compile(r"(?<=\)) -> [^:()]+:$")
"""Matches the return type at the end of a function's signature."""
PIPE_BYTES: Final = 65536
"""The capacity of a pipe on Linux. Sending a longer program blocks until its guest has started."""


class Program(StrEnum):
    """A guest's main program."""

    CANDIDATE = "candidate"
    TESTS = "tests"
    SHARED = "shared"


@functools.cache
def program_bytes(program: Program) -> bytes:
    """Return a program in the format that :data:`ARGV` reads: four bytes of length, and a ``marshal`` tuple.

    The tuple has the magic number of this interpreter, the compiled modules (names and code), the names of the modules
    that are loaded on first use, and the sources of all modules.
    """
    with _COMPILING:
        sources = [_source(name) for name in _MODULES[program.value]]
        later = [_source(name) for name in _LATER[program.value]]
        modules = [(name, _compiled(name, source)) for name, source in sources]
    texts = zlib.compress(marshal.dumps(sources + later, _ANY_VERSION), _EFFORT)
    compiled = zlib.compress(marshal.dumps(modules), _EFFORT)
    packed = marshal.dumps((MAGIC_NUMBER, compiled, [name for name, _ in later], texts), _ANY_VERSION)
    return len(packed).to_bytes(4, "big") + packed


@functools.cache
def _source(name: str) -> tuple[str, str]:
    """Return a module's full name and its text, shortened by :func:`_bare` to less than two thirds."""
    source = resources.files(_PACKAGE).joinpath(f"{name}.py").read_text(encoding="utf-8")
    return f"{_PACKAGE}.{name}", _bare(source)


@functools.cache
def _compiled(name: str, source: str) -> CodeType:
    return compile(source, name, "exec", dont_inherit=True, optimize=2)


def _bare(source: str) -> str:
    """Return a module without docstrings, comments, return types and imports for type checkers, with less indentation.

    This function processes lines, because parsing would cost every run a tenth of a second, and in Python 3.11 two
    threads cannot safely build ``ast`` trees at the same time. This is sufficient for the guests' modules: in them,
    triple quotes occur only in docstrings, which begin a line. Comments with quotes are kept. A test compares the trees
    of the original and of the result.
    """
    bare, in_text, skips = [], False, False
    for line in source.splitlines():
        code = line.lstrip(" ")
        starts = code.startswith(_QUOTES) and not in_text
        if starts or in_text:
            in_text = not code.endswith(_QUOTES) or (code == _QUOTES and starts)
            code = '""' if starts else ""
        code = _RETURNS.sub(":", _COMMENT.sub("", code))
        skips = skips and (line.startswith(" ") or not code)
        if code and not skips:
            skips = code == "if TYPE_CHECKING:"
            bare.append(
                "if TYPE_CHECKING: pass" if skips else " " * ((len(line) - len(line.lstrip(" "))) // _INDENT) + code
            )
    return "\n".join([*bare, ""])
