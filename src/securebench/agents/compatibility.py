"""Check that a program can run in an image: the machine type, the loader and the C library.

The header of an untrusted ELF file is read in bounded time and memory.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from securebench.agents.catalogue import MUSL, find, machine_platform
from securebench.errors import ConfigError, InfrastructureError
from securebench.fs.resolve import opened_inside
from securebench.fs.safe_open import OPEN_FILE, opened

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.agents.model import AgentProgram

_MAGIC: Final = b"\x7fELF"
_HEADER: Final = 64
_SEGMENT: Final = 56
_MAX_SEGMENTS: Final = 128
_MAX_INTERPRETER: Final = 4096
_INTERP: Final = 3
_LITTLE: Final = 1
_64_BITS: Final = 2

MACHINES: Final = {62: "x86_64", 183: "aarch64", 3: "i686", 40: "arm", 243: "riscv64"}
"""The kernel's names of machine types, by their numbers in ELF headers."""

_SHELL: Final = "/bin/sh"
"""If a program has no loader, the ELF header of this file shows the machine type of the image."""

_GLIBC: Final = "/ld-linux"
_GLIBC_MARK: Final = b"GLIBC_PRIVATE"
"""A string in every glibc loader. Replacements such as musl's gcompat lack it, and fail to load some programs."""

_MAX_LOADER: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Elf:
    """The header of a program. ``machine`` is the machine type, as the kernel names it.

    ``interpreter`` is empty for a static program and for a 32-bit program.
    """

    bits: int
    machine: str
    interpreter: str


def read_elf(descriptor: int) -> Elf | None:
    """Return the header of an open file, or ``None`` if it is not a valid ELF file. Raises ``OSError``."""
    header = os.pread(descriptor, _HEADER, 0)
    if len(header) < _HEADER or not header.startswith(_MAGIC):
        return None
    wide, little = header[4] == _64_BITS, header[5] == _LITTLE
    order = "<" if little else ">"
    (number,) = struct.unpack_from(f"{order}H", header, 18)
    machine = MACHINES.get(number, f"ELF machine {number}")
    if not wide:  # only error messages use such a header: all agent programs have 64 bits
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
    """Return up to ``size`` bytes at ``offset``, or no bytes if the offset is too large for any file."""
    return os.pread(descriptor, size, offset) if offset < 1 << 62 else b""


def choose_platform(name: str, root: Path, machine: str | None = None, *, image: str = "the image") -> str:
    """Return the platform of a variant of ``name`` that can run in the image unpacked at ``root``.

    A musl variant is chosen only if the other variant cannot run there. ``machine`` is the kernel's machine name, by
    default that of this machine. Raises :class:`ConfigError` (``agent-unfit``, ``agent-unknown``).
    """
    known = find(name)
    plain = known.variant(machine_platform(machine))
    variants = [plain, *(v for v in known.variants if v.platform == plain.platform + MUSL)]
    troubles = []
    for variant in variants:
        trouble = _trouble(variant.interpreter, root, machine)
        if not trouble:
            return variant.platform
        troubles.append(trouble)
    raise _unfit(name, image, "; and ".join(dict.fromkeys(troubles)))


def require_fit(program: AgentProgram, root: Path, machine: str | None = None, *, image: str = "the image") -> None:
    """Raise :class:`ConfigError` (``agent-unfit``) if ``program`` cannot run in the image unpacked at ``root``.

    The program's ELF header says what it needs. A program that comes with a language runtime, such as Node.js, always
    fits. Raises :class:`InfrastructureError` (``agent-unusable``) if the executable is not a Linux program.
    """
    wanted = machine or os.uname().machine
    if find(program.name).runtime:
        return  # its loader and libraries come with the runtime
    with opened(program.directory / program.executable, OPEN_FILE) as descriptor:
        elf = read_elf(descriptor)
    if elf is None:
        raise InfrastructureError(
            f"{program.name} {program.version} is not a Linux program",
            code="agent-unusable",
            hint=f"run 'securebench agents remove {program.name}'; the next run installs it again",
        )
    if elf.machine != wanted:
        raise _unfit(program.name, image, f"the program is made for {elf.machine}, and this machine is {wanted}")
    if trouble := _trouble(elf.interpreter, root, wanted):
        raise _unfit(program.name, image, trouble)


def _trouble(interpreter: str, root: Path, machine: str | None) -> str:
    """Return why a program with this loader cannot run in an image, or an empty string."""
    wanted = machine or os.uname().machine
    found, is_glibc = _look(root, interpreter or _SHELL)
    if found is not None and found.machine != wanted:
        return f"the image is made for {found.machine}, and this machine is {wanted}"
    if not interpreter:
        return ""
    library = "glibc" if _GLIBC in interpreter else "musl"
    if found is None:
        return f"the image has no {library} ({interpreter} is missing or not an ELF file)"
    if library == "glibc" and not is_glibc:
        return f"{interpreter} in the image is not glibc's loader"
    return ""


def _look(root: Path, path: str) -> tuple[Elf | None, bool]:
    """Return the ELF header of a file in the image, and whether the file is a glibc loader."""
    with opened_inside(root, path) as descriptor:
        if descriptor is None:
            return None, False
        return read_elf(descriptor), _GLIBC_MARK in os.pread(descriptor, _MAX_LOADER, 0)


def _unfit(name: str, image: str, why: str) -> ConfigError:
    return ConfigError(
        f"{name} cannot run in {image}: {why}",
        code="agent-unfit",
        hint="use an image that is built for this machine and has glibc (Debian, Ubuntu, Fedora), or use another "
        "agent; an image with musl (Alpine) works only if the program has a musl build",
    )
