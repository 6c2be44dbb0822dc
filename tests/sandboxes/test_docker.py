"""The Docker driver on the real engine: what the conformance suite, which holds every driver, does not ask."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from securebench.sandboxes.base import Command, SandboxSpec

if TYPE_CHECKING:
    from securebench.images.model import ResolvedImage
    from securebench.sandboxes.docker import DockerDriver

pytestmark = pytest.mark.engine


def test_a_command_runs(docker_driver: DockerDriver, base_image: ResolvedImage) -> None:
    """A command runs in a container, and what it wrote comes back."""
    with docker_driver.create(SandboxSpec(image=base_image)) as sandbox:
        result = sandbox.run(Command(argv=("/bin/echo", "hello"), timeout_seconds=20))
    assert (result.exit_code, result.stdout, result.stderr) == (0, b"hello\n", b"")
