"""Resolving a reference on an engine: the image is found or pulled, or the error says how to get it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from engine_doubles import FakeEngine
from securebench.engine.client import Engine, connect
from securebench.errors import ConfigError, DiskFullError, EngineError, ImageError
from securebench.images.model import ResolvedImage
from securebench.images.resolve import resolve

if TYPE_CHECKING:
    from collections.abc import Iterator

    from securebench.images.store.image_store import ImageStore
    from securebench.sandboxes.docker.driver import DockerDriver

IMAGE_ID = "sha256:" + "a" * 64
FOUND = {
    "Id": IMAGE_ID,
    "Architecture": "arm64",
    "Size": 123,
    "Config": {
        "Env": ["PATH=/bin", "EMPTY=", "TWO=a=b"],
        "WorkingDir": "/work",
        "User": "app",
        "Volumes": {"/data": {}, "/cache": {}},
    },
}


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeEngine]:
    """Yield a fake engine without images."""
    server = FakeEngine(tmp_path / "engine.sock")
    server.refuse("GET .*/images/", 404, "no such image")
    yield server
    server.close()


@pytest.fixture
def connected(fake: FakeEngine, own_store: ImageStore) -> Iterator[Engine]:
    """Yield a connection to the fake engine, on a machine whose image store is empty."""
    engine = connect([fake.endpoint])
    yield engine
    engine.close()


def pulls(fake: FakeEngine) -> list[str]:
    """Return the paths of the requests that pull an image."""
    return [path for method, path, _ in fake.requests if method == "POST" and "/images/create" in path]


def test_an_image_that_is_there_is_described(fake: FakeEngine, connected: Engine) -> None:
    """An image that the engine has is resolved to its id and configuration, and nothing is pulled."""
    fake.answer("GET .*/images/tool:1/json", FOUND)
    assert resolve(connected, "tool:1") == ResolvedImage(
        reference="tool:1",
        id=IMAGE_ID,
        environment={"PATH": "/bin", "EMPTY": "", "TWO": "a=b"},
        workdir="/work",
        user="app",
        architecture="arm64",
        size_bytes=123,
        volumes=("/cache", "/data"),
    )
    assert pulls(fake) == []


def test_an_image_without_configuration_is_described(fake: FakeEngine, connected: Engine) -> None:
    """An image with an empty configuration, such as an imported one, is resolved with defaults."""
    config = {"Env": None, "WorkingDir": "", "User": "", "Volumes": None}
    fake.answer("GET .*/images/bare/json", {"Id": IMAGE_ID, "Config": config})
    image = resolve(connected, "bare")
    assert (image.environment, image.workdir, image.user, image.volumes) == ({}, "/", "", ())


def test_a_missing_image_is_pulled_with_progress(
    fake: FakeEngine, connected: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing image is pulled. Each step is reported as a line, but byte counts are not."""
    events = [
        {"status": "Pulling from library/tool", "id": "1"},
        {"status": "Downloading", "id": "abc", "progressDetail": {"current": 1, "total": 2}},
        {"status": "Pull complete", "id": "abc", "progressDetail": {}},
        {"status": "Status: Downloaded newer image"},
    ]
    fake.answer("POST .*/images/create", b"".join(json.dumps(event).encode() + b"\n" for event in events))
    original = fake.find

    def find(method: str, path: str, body: bytes) -> tuple[int, bytes]:
        answer = original(method, path, body)
        if "/images/create" in path:  # after the pull, the engine has the image
            fake.answer("GET .*/images/registry.example/tool:1/json", FOUND)
        return answer

    monkeypatch.setattr(fake, "find", find)
    lines: list[str] = []
    assert resolve(connected, "registry.example/tool:1", lines.append).id == IMAGE_ID
    assert lines == [
        "pulling registry.example/tool:1",
        "1: Pulling from library/tool",
        "abc: Pull complete",
        "Status: Downloaded newer image",
    ]


@pytest.mark.parametrize("how", ["refused", "unreachable", "in the stream"])
def test_a_pull_that_fails_is_told(fake: FakeEngine, connected: Engine, how: str) -> None:
    """If an image cannot be pulled, the error says how to get it (I07)."""
    if how == "in the stream":
        fake.answer("POST .*/images/create", b'{"status": "x"}\n{"error": "toomanyrequests: limit"}\n')
    else:
        status = 404 if how == "refused" else 500
        fake.refuse("POST .*/images/create", status, "toomanyrequests: limit")
    with pytest.raises(ImageError, match="toomanyrequests: limit") as raised:
        resolve(connected, "registry.example/tool:1")
    assert raised.value.code == "image-unavailable"
    assert "securebench images import" in raised.value.hint
    assert "securebench images pull" in raised.value.hint


def test_a_full_disk_is_no_missing_image(fake: FakeEngine, connected: Engine) -> None:
    """A pull that fills the engine's disk raises DiskFullError."""
    fake.answer("POST .*/images/create", b'{"error": "write /x: no space left on device"}')
    with pytest.raises(DiskFullError):
        resolve(connected, "registry.example/tool:1")


@pytest.mark.parametrize("reference", ["securebench/python:3.11", "securebench/new"])
def test_our_own_images_are_never_pulled(fake: FakeEngine, connected: Engine, reference: str) -> None:
    """An image with SecureBench's own prefix is never pulled: the error says how to build it (I06)."""
    with pytest.raises(ImageError) as raised:
        resolve(connected, reference)
    assert pulls(fake) == []
    assert "securebench images build" in raised.value.hint


def test_an_id_is_never_pulled(fake: FakeEngine, connected: Engine) -> None:
    """An image id that the engine does not have is not pulled."""
    with pytest.raises(ImageError):
        resolve(connected, IMAGE_ID)
    assert pulls(fake) == []


def test_a_dead_engine_is_no_missing_image(fake: FakeEngine, connected: Engine) -> None:
    """If the engine is not reachable, EngineError is raised."""
    fake.close()
    connected.close()
    Path(fake.endpoint.path).unlink()
    with pytest.raises(EngineError):
        resolve(connected, "tool:1")


@pytest.mark.parametrize("reference", ["", "--privileged img", "img\n", "$(id)"])
def test_nothing_else_is_a_reference(fake: FakeEngine, connected: Engine, reference: str) -> None:
    """K15: Text that is not an image reference is refused without a request to the engine."""
    requests_before = len(fake.requests)
    with pytest.raises(ConfigError) as raised:
        resolve(connected, reference)
    assert raised.value.code == "image-reference-invalid"
    assert len(fake.requests) == requests_before


@pytest.mark.engine
def test_the_base_image_is_resolved_by_every_name(docker_driver: DockerDriver, base_image: ResolvedImage) -> None:
    """On a real engine, the id of the base image resolves to the same image as its name."""
    assert resolve(docker_driver.engine, base_image.id).id == base_image.id
