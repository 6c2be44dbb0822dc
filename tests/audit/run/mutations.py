"""Mutations of the files of a finished run. ``verify-run`` must find a problem after each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from audit.run.made_runs import verify
from securebench.errors import ConfigError
from securebench.results.run_directory.files import JOURNAL, SUPERSEDED
from securebench.results.run_directory.header import HEADER

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILES = (HEADER, JOURNAL, SUPERSEDED)
_MASKS = (0x01, 0x20, 0x80, 0x02, 0x10)
"""Bits to flip.

The first gives a neighbouring digit or letter, the second a letter in the other case, and the third a byte that is not
ASCII.
"""


def exit_code(directory: Path) -> int:
    """Return the exit code of ``verify-run``: that of its checks, or 1 after a :class:`ConfigError`."""
    try:
        return verify(directory).exit_code
    except ConfigError:
        return 1


def flips(data: bytes, count: int | None = None) -> Iterator[tuple[int, bytes]]:
    """Yield ``(position, changed data)`` for every byte, or for about ``count`` evenly spaced bytes."""
    step = 1 if count is None else max(1, len(data) // count)
    for number, at in enumerate(range(0, len(data), step)):
        mask = _MASKS[number % len(_MASKS)]
        yield at, data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]


def line_changes(data: bytes, foreign: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield ``(description, changed data)``: lines are dropped, doubled, moved, cut, or taken from ``foreign``."""
    lines, others = data.splitlines(keepends=True), foreign.splitlines(keepends=True)
    for at, line in enumerate(lines):
        yield f"line {at} dropped", b"".join(lines[:at] + lines[at + 1 :])
        yield f"line {at} duplicated", b"".join([*lines[: at + 1], line, *lines[at + 1 :]])
        yield f"line {at} moved to the end", b"".join([*lines[:at], *lines[at + 1 :], line])
        yield f"tail cut at line {at}", b"".join(lines[:at])
        yield f"tail cut in line {at}", b"".join([*lines[:at], line[: len(line) // 2]])
        yield f"tail cut before the newline of line {at}", b"".join([*lines[:at], line[:-1]])
        yield f"blank line before line {at}", b"".join([*lines[:at], b"\n", *lines[at:]])
        for number, other in enumerate(others):
            yield f"line {number} of another run inserted before {at}", b"".join([*lines[:at], other, *lines[at:]])
            yield (
                f"line {at} replaced by line {number} of another run",
                b"".join([*lines[:at], other, *lines[at + 1 :]]),
            )
    for at in range(len(lines) - 1):
        yield f"lines {at} and {at + 1} swapped", b"".join([*lines[:at], lines[at + 1], lines[at], *lines[at + 2 :]])
    yield "a newline more", data + b"\n"
    yield "carriage returns", data.replace(b"\n", b"\r\n")
    yield "a byte order mark", b"\xef\xbb\xbf" + data
    yield "a NUL at the end", data + b"\0"


def survivors(directory: Path, name: str, variants: Iterator[tuple[object, bytes]]) -> list[object]:
    """Return the variants of a file for which ``verify-run`` finds no problem. The file is restored afterwards."""
    path = directory / name
    original = path.read_bytes()
    found = []
    for what, data in variants:
        if data != original:
            path.write_bytes(data)
            if exit_code(directory) == 0:
                found.append(what)
    path.write_bytes(original)
    return found
