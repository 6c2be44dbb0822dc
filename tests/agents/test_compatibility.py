"""Which variant of a program can run in an image, and the errors if none can."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from elf_files import AARCH64, X86_64, elf_file
from securebench.agents.compatibility import choose_platform, require_fit
from securebench.agents.model import AgentProgram
from securebench.errors import ConfigError, InfrastructureError

if TYPE_CHECKING:
    from pathlib import Path

GLIBC = "lib64/ld-linux-x86-64.so.2"
MUSL = "lib/ld-musl-x86_64.so.1"
SHELL = "bin/sh"


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """Return the root directory of an empty image."""
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def put(image: Path, path: str, machine: int = X86_64, mark: bytes = b"") -> None:
    """Write an ELF file to ``path`` in the image."""
    (image / path).parent.mkdir(parents=True, exist_ok=True)
    (image / path).write_bytes(elf_file(machine, mark=mark))


def put_glibc(image: Path, machine: int = X86_64, path: str = GLIBC) -> None:
    """Write a file to ``path`` that is recognised as the loader of glibc."""
    put(image, path, machine, b"\0GLIBC_PRIVATE\0")


def made(tmp_path: Path, data: bytes, name: str = "claude_code") -> AgentProgram:
    """Return a program whose executable contains ``data``."""
    (tmp_path / "program").write_bytes(data)
    return AgentProgram(
        name=name, version="1.2.3", platform="linux-x64", integrity="", directory=tmp_path, executable="program"
    )


def test_an_image_with_glibc_gets_the_program_for_it(image: Path) -> None:
    """If an image has both glibc and musl, the glibc variant is chosen.

    The path of glibc's loader may contain links, as it does in distributions.
    """
    put_glibc(image, path="usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2")
    (image / "usr/lib64").mkdir()
    (image / "usr/lib64/ld-linux-x86-64.so.2").symlink_to("/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2")
    (image / "lib64").symlink_to("usr/lib64")
    (image / "lib").symlink_to("usr/lib")
    put(image, "usr/" + MUSL)
    assert choose_platform("claude_code", image, "x86_64") == "linux-x64"


def test_an_image_with_musl_alone_gets_the_program_for_that(image: Path) -> None:
    """The musl variant is chosen, even if the path of glibc's loader is a link to musl's loader."""
    put(image, MUSL)
    assert choose_platform("claude_code", image, "x86_64") == "linux-x64-musl"
    (image / "lib64").mkdir()
    (image / GLIBC).symlink_to("/" + MUSL)
    assert choose_platform("claude_code", image, "x86_64") == "linux-x64-musl"


def test_a_static_program_needs_nothing(image: Path) -> None:
    """A static program can run in an empty image."""
    assert choose_platform("codex", image, "x86_64") == "linux-x64"
    assert choose_platform("codex", image, "aarch64") == "linux-arm64"


def test_an_image_for_another_machine_is_refused(image: Path) -> None:
    """An image for another machine type is refused.

    For a static program, the machine type of the image is read from its shell. For others, it is read from its loader.
    """
    put(image, SHELL, AARCH64)
    put_glibc(image, AARCH64)
    for name in ("codex", "claude_code"):
        with pytest.raises(ConfigError, match="made for aarch64, and this machine is x86_64") as caught:
            choose_platform(name, image, "x86_64", image="the/image:1")
        assert caught.value.code == "agent-unfit"
        assert "the/image:1" in caught.value.message


def test_an_image_without_a_libc_is_refused(image: Path) -> None:
    """The program needs glibc or musl. If the image has neither, the message names both."""
    with pytest.raises(ConfigError, match=r"no glibc .*; and the image has no musl") as caught:
        choose_platform("claude_code", image, "x86_64")
    assert caught.value.code == "agent-unfit"
    assert "Alpine" in caught.value.hint


@pytest.mark.parametrize("loader", [b"", b"#!/bin/sh\n", b"\x7fELF"])
def test_what_is_no_loader_is_none(image: Path, loader: bytes) -> None:
    """A loader that is not a complete ELF file counts as missing, even if it contains the mark of glibc."""
    (image / "lib64").mkdir()
    (image / GLIBC).write_bytes(loader + b"GLIBC_PRIVATE")
    with pytest.raises(ConfigError):
        choose_platform("claude_code", image, "x86_64")


def test_a_machine_without_programs_is_refused(image: Path) -> None:
    """A machine type for which no program exists is refused, even for a static program."""
    with pytest.raises(ConfigError, match="riscv64"):
        choose_platform("codex", image, "riscv64")


def test_a_program_fits_by_what_its_own_header_says(image: Path, tmp_path: Path) -> None:
    """The loader that a program's ELF header names, if any, must be in the image."""
    require_fit(made(tmp_path, elf_file()), image, "x86_64")
    put_glibc(image)
    require_fit(made(tmp_path, elf_file(X86_64, f"/{GLIBC}")), image, "x86_64")
    with pytest.raises(ConfigError, match="no musl") as caught:
        require_fit(made(tmp_path, elf_file(X86_64, f"/{MUSL}")), image, "x86_64", image="the/image:1")
    assert caught.value.code == "agent-unfit"
    put(image, MUSL)
    require_fit(made(tmp_path, elf_file(X86_64, f"/{MUSL}")), image, "x86_64")


def test_a_program_for_another_machine_is_refused(image: Path, tmp_path: Path) -> None:
    """A program for another machine type than that of this machine is refused."""
    with pytest.raises(ConfigError, match="program is made for aarch64"):
        require_fit(made(tmp_path, elf_file(AARCH64)), image, "x86_64")


def test_a_program_that_is_none_is_unusable(image: Path, tmp_path: Path) -> None:
    """A script is refused as a program, because nobody has checked that the image has its interpreter."""
    with pytest.raises(InfrastructureError) as caught:
        require_fit(made(tmp_path, b"#!/usr/bin/env node\n"), image, "x86_64")
    assert caught.value.code == "agent-unusable"
