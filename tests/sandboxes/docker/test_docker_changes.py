"""Collecting a directory from an exited container, which is kept until its sandbox is closed."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from securebench.engine.client import connect
from securebench.errors import InfrastructureError
from securebench.sandboxes.base import Command, SandboxSpec
from securebench.sandboxes.collected import CollectedArchive, DirectoryReplacedError
from securebench.sandboxes.docker.driver import RUN_LABEL, DockerDriver
from securebench.sandboxes.docker.sandbox import left_directory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from securebench.engine.client import Engine
    from securebench.images.model import ResolvedImage

LIBRARY = "/usr/lib/python3.11/email"
RUN = "collecting"
DIRECTORY, LINK = 1 << 31, 1 << 27


class FakeContainer:
    """A fake container with a mode for each path. It records which paths were archived."""

    def __init__(self, modes: dict[str, int]) -> None:
        self.modes = modes
        self.archived: list[str] = []

    def mode(self, path: str) -> int | None:
        """Return the mode of ``path``, or ``None`` if it does not exist."""
        return self.modes.get(path)

    def archive(self, path: str) -> Iterator[bytes]:
        """Record ``path``, and return an empty archive."""
        self.archived.append(path)
        return iter(())


@pytest.mark.parametrize(
    "modes",
    [
        {"/srv": DIRECTORY},
        {"/srv": DIRECTORY, "/srv/app": 0o644},
        {"/srv": DIRECTORY, "/srv/app": LINK | 0o777},
        {"/srv": LINK | 0o777, "/srv/app": DIRECTORY},
    ],
)
def test_no_link_is_followed_to_it(modes: dict[str, int]) -> None:
    """H15: a path is archived only if all its components are directories, because an engine would follow links."""
    container: Any = FakeContainer(modes)
    with pytest.raises(DirectoryReplacedError):
        left_directory(container, "/srv/app")
    assert container.archived == []


def test_a_directory_is_archived_by_its_own_path() -> None:
    """If each component of a path is a directory, exactly this path is archived."""
    container: Any = FakeContainer({"/srv": DIRECTORY | 0o755, "/srv/app": DIRECTORY | 0o700})
    assert isinstance(left_directory(container, "/srv/app"), CollectedArchive)
    assert container.archived == ["/srv/app"]


def states(engine: Engine) -> list[str]:
    """Return the states of this test's containers."""
    found = engine.client.containers(all=True, filters={"label": f"{RUN_LABEL}={RUN}"})
    return [container["State"] for container in found]


@pytest.mark.engine
@pytest.mark.parametrize("end", ["close", "kill_all"])
def test_a_container_stays_until_its_sandbox_is_closed(engine: Engine, base_image: ResolvedImage, end: str) -> None:
    """An exited container is kept until its sandbox is closed or ``kill_all`` is called. Then it is removed."""
    with closing(DockerDriver(run_id=RUN, engine=connect())) as driver:
        sandbox = driver.create(SandboxSpec(image=base_image, read_only=False, user=(0, 0), collect=LIBRARY))
        command = Command(argv=("sh", "-c", f"echo new > {LIBRARY}/new; sleep 60"), timeout_seconds=2)
        assert sandbox.run(command).timed_out
        assert states(engine) == ["exited"]
        assert b"email/new" in b"".join(sandbox.collected().pieces)
        sandbox.close() if end == "close" else driver.kill_all()
        with pytest.raises(InfrastructureError):
            sandbox.collected()
        driver.kill_all()
        assert states(engine) == []


@pytest.mark.engine
def test_a_container_that_is_gone_is_told(engine: Engine, base_image: ResolvedImage) -> None:
    """If the container was removed, reading its files raises an infrastructure error instead of returning no files."""
    with closing(DockerDriver(run_id=RUN, engine=connect())) as driver:
        sandbox = driver.create(SandboxSpec(image=base_image, read_only=False, user=(0, 0), collect=LIBRARY))
        sandbox.run(Command(argv=("true",), timeout_seconds=60))
        left = sandbox.collected()
        (container,) = engine.client.containers(all=True, filters={"label": f"{RUN_LABEL}={RUN}"})
        engine.client.remove_container(container["Id"])
        with pytest.raises(InfrastructureError):
            next(left.pieces)
