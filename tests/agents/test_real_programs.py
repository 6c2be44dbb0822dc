"""The pinned versions of real programs match the catalogue, and start in sandboxes of the base image."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from securebench.agents.catalogue import PROGRAMS
from securebench.agents.compatibility import choose_platform, read_elf, require_fit
from securebench.fs.safe_open import OPEN_FILE, opened
from securebench.harnesses.provider.program.installation import (
    VERSION_SECONDS,
    parse_version,
    require_version,
    version_command,
)
from securebench.sandboxes.base import Command, Mount, SandboxSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from securebench.agents.model import AgentProgram
    from securebench.images.model import ResolvedImage
    from securebench.sandboxes.base import SandboxDriver

pytestmark = pytest.mark.agents

TARGET = "/opt/securebench/programs"

every_program = pytest.mark.parametrize("name", ["codex", "claude_code"])


@every_program
def test_a_pinned_program_is_what_the_catalogue_says(name: str, agent_program: Callable[[str], AgentProgram]) -> None:
    """The version, integrity, machine type and loader (if any) of the real program are those of the catalogue."""
    program = agent_program(name)
    known = PROGRAMS[name]
    variant = known.variant(program.platform)
    with opened(program.directory / program.executable, OPEN_FILE) as descriptor:
        elf = read_elf(descriptor)
    assert elf is not None
    assert (elf.bits, elf.machine, elf.interpreter) == (64, os.uname().machine, variant.interpreter)
    assert (program.version, program.integrity) == (known.pinned, variant.integrity)


@every_program
@pytest.mark.every_driver
def test_a_pinned_program_starts_in_a_sandbox(
    name: str, agent_program: Callable[[str], AgentProgram], driver: SandboxDriver, base_image: ResolvedImage
) -> None:
    """In a sandbox with the default settings (unprivileged user, no network), the program prints its version."""
    with driver.image_tree(base_image) as lease:
        platform = choose_platform(name, lease.root, image=base_image.reference)
        program = agent_program(name)
        assert program.platform == platform
        require_fit(program, lease.root, image=base_image.reference)
    spec = SandboxSpec(image=base_image, mounts=(Mount(program.directory, TARGET),))
    with driver.create(spec) as sandbox:
        command = Command(argv=version_command(program, TARGET), timeout_seconds=VERSION_SECONDS)
        result = sandbox.run(command)
    require_version(program, result, base_image.reference)
    assert parse_version(name, result.stdout) == PROGRAMS[name].pinned
