"""The guests' programs, as they are sent: one command line for all, and the sources over stdin."""

from __future__ import annotations

import functools
import json
from enum import StrEnum
from importlib import resources
from typing import Final

_PACKAGE: Final = "securebench.verifiers.code_completion.guest"
_MODULES: Final = {
    "candidate": ("wire", "plain", "codec", "peer", "candidate"),
    "tests": ("wire", "plain", "codec", "peer", "remote", "tests"),
    "shared": ("wire", "plain", "codec", "peer", "candidate", "remote", "tests", "shared"),
}
"""What each program consists of, in the order of its imports."""

_BOOTSTRAP: Final = f"""\
import json, os, sys
def take(count):
    data = b""
    while len(data) < count:
        part = os.read(0, count - len(data))
        if not part: os._exit(1)
        data += part
    return data
for name, source in json.loads(take(int.from_bytes(take(4), "big"))):
    module = sys.modules["{_PACKAGE}." + name] = type(sys)("{_PACKAGE}." + name)
    exec(compile(source, module.__name__, "exec", dont_inherit=True), module.__dict__)
module.main()
"""
"""Reads one length-prefixed program from fd 0, byte for byte, so that what follows it stays for the program to read."""

ARGV: Final = ("python3", "-I", "-B", "-c", _BOOTSTRAP)
"""Isolated from the environment, the working directory and user packages; nothing is compiled to disk."""


class Program(StrEnum):
    """A guest's main program."""

    CANDIDATE = "candidate"
    TESTS = "tests"
    SHARED = "shared"


@functools.cache
def program_bytes(program: Program) -> bytes:
    """Return a program as :data:`ARGV` reads it: four bytes of length, and a JSON list of module names and sources."""
    package = resources.files(_PACKAGE)
    sources = [(name, package.joinpath(f"{name}.py").read_text(encoding="utf-8")) for name in _MODULES[program.value]]
    packed = json.dumps(sources).encode("ascii")
    return len(packed).to_bytes(4, "big") + packed
