"""The reader of ELF headers: valid headers, other files, and hostile headers."""

from __future__ import annotations

import os
import struct
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elf_files import AARCH64, I386, X86_64, elf_file
from securebench.agents.compatibility import Elf, read_elf
from securebench.fs.safe_open import opened

if TYPE_CHECKING:
    from pathlib import Path


def read(path: Path, data: bytes) -> Elf | None:
    """Write ``data`` to a file, and return the header that is read from it."""
    path.write_bytes(data)
    with opened(path, os.O_RDONLY) as descriptor:
        return read_elf(descriptor)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (elf_file(), Elf(64, "x86_64", "")),
        (elf_file(AARCH64, "/lib/ld-linux-aarch64.so.1"), Elf(64, "aarch64", "/lib/ld-linux-aarch64.so.1")),
        (elf_file(X86_64, "/ld", order=">"), Elf(64, "x86_64", "/ld")),
        (elf_file(4711), Elf(64, "ELF machine 4711", "")),
        (b"\x7fELF\x01\x01\x01" + bytes(11) + struct.pack("<H", I386) + bytes(60), Elf(32, "i686", "")),
    ],
)
def test_machine_and_loader_are_read(tmp_path: Path, data: bytes, expected: Elf) -> None:
    """Machine type and loader are read in either byte order. Of a 32-bit file, only the machine type is read."""
    assert read(tmp_path / "file", data) == expected


@pytest.mark.parametrize("data", [b"", b"#!/bin/sh\n", b"\x7fELF", elf_file()[:63]])
def test_other_files_are_none(tmp_path: Path, data: bytes) -> None:
    """An empty file, a script and a truncated header are not ELF files."""
    assert read(tmp_path / "file", data) is None


@given(changes=st.lists(st.tuples(st.integers(4, 200), st.integers(0, 255)), max_size=30), cut=st.integers(0, 240))
def test_no_header_does_harm(tmp_path: Path, changes: list[tuple[int, int]], cut: int) -> None:
    """Reading a damaged header returns ``None`` or a header with a loader of limited length."""
    data = bytearray(elf_file(X86_64, "/lib64/ld-linux-x86-64.so.2"))
    for position, value in changes:
        data[position % len(data)] = value
    found = read(tmp_path / "file", bytes(data[:cut]))
    assert found is None or len(found.interpreter) <= 4096


def test_this_interpreter_is_read() -> None:
    """The machine type of the running Python interpreter is read correctly."""
    with opened(os.path.realpath(sys.executable), os.O_RDONLY) as descriptor:
        found = read_elf(descriptor)
    assert found is not None
    assert found.machine == os.uname().machine
