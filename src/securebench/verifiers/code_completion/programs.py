"""The guests' programs, as they are sent: one command line for all, and the sources over stdin."""

from __future__ import annotations

import functools
import io
import marshal
import tokenize
import zlib
from enum import StrEnum
from importlib import resources
from importlib.util import MAGIC_NUMBER
from typing import Final

_PACKAGE: Final = "securebench.verifiers.code_completion.guest"
_ANY_VERSION: Final = 2
"""The format of ``marshal`` that every Python 3 reads."""

_COMMON: Final = ("text", "wire", "plain", "codec", "errors", "peer")
_RUN: Final = ("notes", "names", "run")
_MODULES: Final = {
    "candidate": (*_COMMON, "candidate"),
    "tests": (*_COMMON, *_RUN, "operators", "remote", "tests"),
    "shared": (*_COMMON, *_RUN, "candidate", "shared"),
}
"""What each program consists of, in the order of its imports."""
_LATER: Final = {
    "candidate": ("operators", "values", "shapes", "lent"),
    "tests": (
        *("values", "shapes", "fields", "subclasses", "enums", "twins", "described", "arguments"),
        *("nan", "results"),
    ),
    "shared": ("operators", "values", "shapes", "lent", "results"),
}
"""What each program loads when it first uses it: few tasks need these, and they are compiled in the sandbox."""

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
"""Reads one length-prefixed program from fd 0, byte for byte, so that what follows it stays for the program to read.

It takes what was compiled here if its interpreter is of the same version, which saves a fifth of its time, else the
sources. Both are deflated, so that a whole program fits into a pipe and nobody waits for it to be read.
"""

ARGV: Final = ("python3", "-I", "-B", "-c", _BOOTSTRAP)
"""Isolated from the environment, the working directory and user packages; nothing is compiled to disk."""


_INDENT: Final = 4
PIPE_BYTES: Final = 65536
"""What a pipe holds on Linux. A program that is longer waits for its guest to start, and so does the other one."""


class Program(StrEnum):
    """A guest's main program."""

    CANDIDATE = "candidate"
    TESTS = "tests"
    SHARED = "shared"


@functools.cache
def program_bytes(program: Program) -> bytes:
    """Return a program as :data:`ARGV` reads it: four bytes of length, and in ``marshal``'s oldest format four things.

    The magic number of this interpreter, the modules (names and code) as it compiled them, the names of the modules
    that are loaded when they are needed, and the sources of all.
    """
    sources, later = _sources(_MODULES[program.value]), _sources(_LATER[program.value])
    modules = [(name, compile(source, name, "exec", dont_inherit=True, optimize=2)) for name, source in sources]
    texts = zlib.compress(marshal.dumps(sources + later, _ANY_VERSION), 9)
    compiled = zlib.compress(marshal.dumps(modules), 9)
    packed = marshal.dumps((MAGIC_NUMBER, compiled, [name for name, _ in later], texts), _ANY_VERSION)
    return len(packed).to_bytes(4, "big") + packed


def _sources(names: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return modules by their full names, without docstrings: they are a third of what would have to be sent."""
    package = resources.files(_PACKAGE)
    return [(f"{_PACKAGE}.{name}", _bare(package.joinpath(f"{name}.py").read_text(encoding="utf-8"))) for name in names]


def _bare(source: str) -> str:
    """Return a module without docstrings, comments, imports for type checkers, blank lines and wide indentation.

    ``ast`` would be shorter, but in Python 3.11 two threads cannot safely make trees at once. No guest has a text of
    several lines that is not a docstring: its indentation would change, too.
    """
    lines = source.splitlines(keepends=True)
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    for before, token, after in reversed(list(zip([None, *tokens], tokens, tokens[1:], strict=False))):
        starts = before is None or before.type in (tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT)
        is_text = token.type == tokenize.STRING and starts and after.type == tokenize.NEWLINE
        if is_text or token.type == tokenize.COMMENT:
            (first, left), (last, right) = token.start, token.end
            kept = lines[first - 1][:left] + ('""' if is_text else "") + lines[last - 1][right:]
            lines[first - 1 : last] = [kept]
    bare, skips = [], False
    for line in lines:
        code = line.lstrip(" ")
        skips = skips and (line != code or not code.strip())
        if code.strip() and not skips:
            skips = code == "if TYPE_CHECKING:\n"
            bare.append("if TYPE_CHECKING: pass\n" if skips else " " * ((len(line) - len(code)) // _INDENT) + code)
    return "".join(bare)
