"""Fixtures of the fault suite."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from faults.matrix import Scenario, docker_scenario, oci_scenarios
from faults.runs import REPOSITORY_PACK
from faults.server import ForkServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from securebench.sandboxes.docker.driver import DockerDriver
    from securebench.sandboxes.oci import OciDriver


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    """Yield a server process that forks runs."""
    with ForkServer() as server:
        yield server


@pytest.fixture(scope="session")
def repository_images() -> None:
    """Build the images of the repository tasks, if they are missing."""
    command = [sys.executable, "-m", "securebench", "images", "build", str(REPOSITORY_PACK / "images")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="session")
def on_oci(
    oci_driver: OciDriver, fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Scenario]:
    """Return the scenarios on the oci driver, by name."""
    scenarios = oci_scenarios(tmp_path_factory.mktemp("oci"), oci_driver, fork_server)
    return {scenario.name: scenario for scenario in scenarios}


@pytest.fixture(scope="session")
def on_docker(
    docker_driver: DockerDriver, fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory
) -> Scenario:
    """Return the scenario on the Docker driver.

    The engine gets the image before the first run, so that all runs pass the same fault points.
    """
    docker_driver.resolve_image("securebench/python:3.11")
    return docker_scenario(tmp_path_factory.mktemp("docker"), docker_driver, fork_server)
