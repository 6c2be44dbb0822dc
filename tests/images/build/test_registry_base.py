"""Building on a base from a registry: asking for the base with a time limit, and building the Dockerfile on it."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from fake_registry import registry_with
from securebench.errors import ImageError
from securebench.images.build import registry_base
from securebench.images.build.recipe_kinds import SystemRecipe
from securebench.images.build.registry_base import build_on_base, offers
from tiny_root import tiny_root

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from securebench.engine.client import Engine

pytestmark = pytest.mark.engine

DOCKERFILE = 'ARG BASE\nFROM ${BASE}\nRUN ["/bin/sh", "-c", "echo made > /made"]\n'


@pytest.fixture
def base(engine: Engine) -> Iterator[str]:
    """Return the reference of an image in a registry on this machine."""
    with registry_with(tiny_root(), engine.client.version()["Arch"]) as reference:
        yield reference
        if engine.client.images(name=reference):
            engine.client.remove_image(reference, force=True)


def _recipe(directory: Path, base: str, dockerfile: str = DOCKERFILE) -> SystemRecipe:
    (directory / "Dockerfile").write_text(dockerfile)
    return SystemRecipe(
        name="tool",
        directory=directory,
        reference="securebench/test-registry:1",
        summary="A tool.",
        base=base,
        suite="bookworm",
        packages=(),
        environment={},
        command=(),
        checks=(),
    )


def test_a_registry_that_has_the_image_offers_it(engine: Engine, base: str) -> None:
    """A registry that has the image is found to offer it, and nothing is downloaded."""
    assert offers(engine, base)
    assert engine.client.images(name=base) == []


def test_a_registry_without_the_image_does_not_offer_it(engine: Engine, base: str) -> None:
    """A registry does not offer an image with an unknown tag."""
    assert not offers(engine, base.replace(":1", ":2").replace("127.0.0.1:2", "127.0.0.1:1"))


def test_a_registry_that_is_not_there_offers_nothing(engine: Engine) -> None:
    """A registry whose name does not resolve offers nothing, and causes no error."""
    assert not offers(engine, "registry.invalid/base:1")


@pytest.mark.timeout(30)
def test_a_registry_that_never_answers_is_given_up(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry that accepts a connection but never answers is given up after the time limit."""
    monkeypatch.setattr(registry_base, "PROBE_SECONDS", 1)
    with _silent_port() as port:
        started = time.monotonic()
        assert not offers(engine, f"127.0.0.1:{port}/base:1")
        assert time.monotonic() - started < 25


def test_the_dockerfile_is_built_on_the_base(engine: Engine, base: str, tmp_path: Path) -> None:
    """The image has the base's environment, both layers, the labels and no name; the build's steps are reported."""
    steps: list[str] = []
    image = build_on_base(engine, _recipe(tmp_path, base), {"securebench.test": "registry"}, steps.append)
    try:
        found = engine.client.inspect_image(image)  # type: ignore[no-untyped-call]  # not annotated in the stubs
        assert found["RepoTags"] == []
        assert found["Config"]["Labels"] == {"securebench.test": "registry"}
        assert "FROM_BASE=yes" in found["Config"]["Env"]
        assert len(found["RootFS"]["Layers"]) == 2
        assert any("RUN" in step for step in steps)
    finally:
        engine.client.remove_image(image, force=True)


def test_a_dockerfile_that_fails_says_which_and_why(engine: Engine, base: str, tmp_path: Path) -> None:
    """If a Dockerfile fails, the error has the engine's message, and its hint names the file."""
    recipe = _recipe(tmp_path, base, DOCKERFILE.replace("echo made > /made", "exit 7"))
    with pytest.raises(ImageError, match="returned a non-zero code: 7") as caught:
        build_on_base(engine, recipe, {}, lambda _step: None)
    assert caught.value.code == "image-build-failed"
    assert str(recipe.dockerfile) in caught.value.hint


@contextmanager
def _silent_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        held: list[socket.socket] = []

        def accept() -> None:
            try:
                while True:
                    held.append(server.accept()[0])
            except OSError:
                return

        thread = threading.Thread(target=accept)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
        for connection in held:
            connection.close()
