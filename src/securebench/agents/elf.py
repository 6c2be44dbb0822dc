"""Read the machine type and the loader from the header of an untrusted ELF file, in bounded time and memory."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from typing import Final

_MAGIC: Final = b"\x7fELF"
_HEADER: Final = 64
_SEGMENT: Final = 56
_MAX_SEGMENTS: Final = 128
_MAX_INTERPRETER: Final = 4096
_INTERP: Final = 3
_LITTLE: Final = 1
_64_BITS: Final = 2

MACHINES: Final = {62: "x86_64", 183: "aarch64", 3: "i686", 40: "arm", 243: "riscv64"}
"""Machine numbers and the kernel's names for them."""


@dataclass(frozen=True, slots=True)
class Elf:
    """A program or library. ``machine`` is the kernel's name; ``interpreter`` is empty for a static program."""

    bits: int
    machine: str
    interpreter: str


def read_elf(descriptor: int) -> Elf | None:
    """Return the header of the file, or ``None`` if it is not a valid ELF file. Raises ``OSError``."""
    header = os.pread(descriptor, _HEADER, 0)
    if len(header) < _HEADER or not header.startswith(_MAGIC):
        return None
    wide, little = header[4] == _64_BITS, header[5] == _LITTLE
    order = "<" if little else ">"
    (number,) = struct.unpack_from(f"{order}H", header, 18)
    machine = MACHINES.get(number, f"ELF machine {number}")
    if not wide:  # only for error messages: all agent programs have 64 bits
        return Elf(32, machine, "")
    offset, size, count = struct.unpack_from(f"{order}Q14xHH", header, 32)
    if size != _SEGMENT or count > _MAX_SEGMENTS:
        return None
    table = _at(descriptor, offset, size * count)
    for start in range(0, len(table) - _SEGMENT + 1, _SEGMENT):
        kind, _, where, _, _, length = struct.unpack_from(f"{order}IIQQQQ", table, start)
        if kind == _INTERP:
            name = _at(descriptor, where, min(length, _MAX_INTERPRETER)).partition(b"\0")[0]
            return Elf(64, machine, os.fsdecode(name))
    return Elf(64, machine, "")


def _at(descriptor: int, offset: int, size: int) -> bytes:
    """Read ``size`` bytes at ``offset``; nothing if the offset is beyond any file size."""
    return os.pread(descriptor, size, offset) if offset < 1 << 62 else b""
