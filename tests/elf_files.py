"""Minimal ELF files for tests: a header, and optionally a segment that names a loader."""

from __future__ import annotations

import struct

X86_64, AARCH64, I386 = 62, 183, 3


def elf_file(machine: int = X86_64, interpreter: str = "", mark: bytes = b"", *, order: str = "<") -> bytes:
    """Return a 64-bit ELF file for ``machine`` that ends with ``mark``. Without ``interpreter``, it is static."""
    name = interpreter.encode() + b"\0"
    segments = [(1, 0, 0)] + ([(3, 64 + 2 * 56, len(name))] if interpreter else [])
    table = b"".join(struct.pack(f"{order}IIQQQQQQ", kind, 4, at, at, at, size, size, 1) for kind, at, size in segments)
    identity = b"\x7fELF" + bytes((2, 1 if order == "<" else 2, 1)) + bytes(9)
    header = struct.pack(f"{order}HHIQQQIHHHHHH", 3, machine, 1, 0, 64, 0, 0, 64, 56, len(segments), 0, 0, 0)
    return (identity + header + table).ljust(64 + 2 * 56, b"\0") + name + mark
