"""The guests' programs, as they are sent: one command line for all, and the sources over stdin."""

from __future__ import annotations

import functools
import json
import marshal
import zlib
from enum import StrEnum
from importlib import resources
from importlib.util import MAGIC_NUMBER
from typing import Final

_PACKAGE: Final = "securebench.verifiers.code_completion.guest"
_ANY_VERSION: Final = 2
"""The format of ``marshal`` that every Python 3 reads."""

_COMMON: Final = ("text", "wire", "plain", "codec", "peer")
_RUN: Final = ("notes", "names", "run")
_MODULES: Final = {
    "candidate": (*_COMMON, "candidate"),
    "tests": (*_COMMON, *_RUN, "arguments", "nan", "remote", "tests"),
    "shared": (*_COMMON, *_RUN, "candidate", "shared"),
}
"""What each program consists of, in the order of its imports."""

_BOOTSTRAP: Final = """\
import marshal, os, sys, zlib
def take(count):
    data = b""
    while len(data) < count:
        part = os.read(0, count - len(data))
        if not part: os._exit(1)
        data += part
    return data
magic, modules, sources = marshal.loads(take(int.from_bytes(take(4), "big")))
try: from _frozen_importlib_external import MAGIC_NUMBER
except ImportError: MAGIC_NUMBER = None
if magic == MAGIC_NUMBER:
    modules = marshal.loads(zlib.decompress(modules))
else:
    import json
    sources = json.loads(zlib.decompress(sources))
    modules = [(name, compile(source, name, "exec", dont_inherit=True)) for name, source in sources]
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


class Program(StrEnum):
    """A guest's main program."""

    CANDIDATE = "candidate"
    TESTS = "tests"
    SHARED = "shared"


@functools.cache
def program_bytes(program: Program) -> bytes:
    """Return a program as :data:`ARGV` reads it: four bytes of length, and in ``marshal``'s oldest format three things.

    The magic number of this interpreter, the modules (names and code) as it compiled them, and the JSON of their
    sources.
    """
    package = resources.files(_PACKAGE)
    sources = [
        (f"{_PACKAGE}.{name}", package.joinpath(f"{name}.py").read_text(encoding="utf-8"))
        for name in _MODULES[program.value]
    ]
    modules = [(name, compile(source, name, "exec", dont_inherit=True, optimize=0)) for name, source in sources]
    deflated = [zlib.compress(part) for part in (marshal.dumps(modules), json.dumps(sources).encode("ascii"))]
    packed = marshal.dumps((MAGIC_NUMBER, *deflated), _ANY_VERSION)
    return len(packed).to_bytes(4, "big") + packed
