"""The conformance suite: the fake and the real engine pass every check, and a driver that lies does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from securebench.testing.conformance import CHECKS, Check
from securebench.testing.fake_probe import install_probe
from securebench.testing.fake_sandbox import DEFAULT_IMAGE, FakeDriver

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.images.model import ResolvedImage
    from securebench.sandboxes.docker import DockerDriver

every_check = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Give a directory that any user of a sandbox may enter, through parents that he may pass."""
    tmp_path.chmod(0o755)
    return tmp_path.resolve()


@every_check
def test_the_fake_conforms(check: Check, directory: Path) -> None:
    """The fake passes each check that the real drivers pass."""
    driver = FakeDriver()
    install_probe(driver)
    check.run(driver, driver.resolve_image(DEFAULT_IMAGE), directory)
    assert driver.open == set()


@pytest.mark.engine
@every_check
def test_the_docker_driver_conforms(
    check: Check, docker_driver: DockerDriver, base_image: ResolvedImage, directory: Path
) -> None:
    """The Docker driver passes each check on the real engine."""
    check.run(docker_driver, base_image, directory)
