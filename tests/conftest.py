"""Fixtures that many tests share: a driver on the real engine, its base image, and two checks of what is left."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest

from securebench.sandboxes.docker_owner import OWNER_LABEL
from securebench.sandboxes.owner import Owner

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from securebench.images.engine import Engine
    from securebench.images.model import ResolvedImage
    from securebench.sandboxes.docker import DockerDriver

BASE_IMAGE = "securebench/python:3.11"

_REMOVAL_SECONDS = 20.0


def pytest_configure() -> None:
    """Hear an interrupt, also where a shell started this in the background and told it not to: tests send some."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """Give the Docker Engine of this machine. Without one the test fails: it never skips."""
    from securebench.images.engine import connect

    connected = connect()
    yield connected
    connected.close()


@pytest.fixture(scope="session")
def docker_driver(engine: Engine) -> Iterator[DockerDriver]:
    """Give one driver on the real engine, shared by the session as a run shares it."""
    from securebench.sandboxes.docker import DockerDriver

    driver = DockerDriver(run_id="tests", engine=engine)
    yield driver
    driver.close()


@pytest.fixture(scope="session")
def base_image(docker_driver: DockerDriver) -> ResolvedImage:
    """Give the base image, resolved on the real engine."""
    return docker_driver.resolve_image(BASE_IMAGE)


@pytest.fixture(autouse=True)
def _no_container_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail an engine test that leaves a container of this process behind."""
    if request.node.get_closest_marker("engine") is None:
        yield
        return
    engine: Engine = request.getfixturevalue("engine")
    yield
    deadline = time.monotonic() + _REMOVAL_SECONDS  # removal is in the background
    while (left := _own_containers(engine)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left, f"containers left behind: {left}"


@pytest.fixture
def host_canary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give a file of the host outside the run, and fail the test if anything of it changes."""
    canary = tmp_path_factory.mktemp("host") / "canary.txt"
    canary.write_text("untouched\n")
    before = canary.stat()
    yield canary
    after = canary.stat()
    assert canary.read_text() == "untouched\n"
    assert (after.st_ino, after.st_mode, after.st_uid, after.st_mtime_ns) == (
        before.st_ino,
        before.st_mode,
        before.st_uid,
        before.st_mtime_ns,
    )
    assert sorted(path.name for path in canary.parent.iterdir()) == ["canary.txt"]


def _own_containers(engine: Engine) -> list[str]:
    label = f"{OWNER_LABEL}={Owner.current().label()}"
    return [entry["Id"] for entry in engine.client.containers(all=True, filters={"label": label})]
