"""Check that a program can run in an image: the machine type, the loader and the C library."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from securebench.agents.catalogue import MUSL, find, machine_platform
from securebench.agents.elf import Elf, read_elf
from securebench.errors import ConfigError, InfrastructureError
from securebench.fs.resolve import opened_inside
from securebench.fs.safe_open import OPEN_FILE, opened

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.agents.model import AgentProgram

_SHELL: Final = "/bin/sh"
"""The file whose header gives the machine type of an image if no loader does."""
_GLIBC: Final = "/ld-linux"
_GLIBC_MARK: Final = b"GLIBC_PRIVATE"
"""Contained in every glibc loader. Replacements such as musl's gcompat cannot load all programs."""
_MAX_LOADER: Final = 4 * 1024 * 1024


def choose_platform(name: str, root: Path, machine: str | None = None, *, image: str = "the image") -> str:
    """Return the platform of a program that runs in the image unpacked at ``root``, preferring glibc.

    ``machine`` is the kernel's name of the machine, by default this one's. Raises :class:`ConfigError`
    (``agent-unfit``, ``agent-unknown``).
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

    The program's ELF header says what it needs. Raises :class:`InfrastructureError` (``agent-unusable``) if it is not a
    Linux program.
    """
    wanted = machine or os.uname().machine
    with opened(program.directory / program.executable, OPEN_FILE) as descriptor:
        elf = read_elf(descriptor)
    if elf is None:
        raise InfrastructureError(
            f"{program.name} {program.version} is not a Linux program",
            code="agent-unusable",
            hint=f"securebench agents remove {program.name}",
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
        return f"it is made for {found.machine}, and this machine is {wanted}"
    if not interpreter:
        return ""
    library = "glibc" if _GLIBC in interpreter else "musl"
    if found is None:
        return f"it has no {library} ({interpreter} is missing)"
    if library == "glibc" and not is_glibc:
        return f"its {interpreter} is not glibc's"
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
        hint="use an image for this machine, with glibc (Debian, Ubuntu, Fedora) or, for a program with a musl build, "
        "with musl (Alpine); or another agent",
    )
