"""Fixtures for an image with pytest and a small repository: in the store and, for ``docker``, in the engine."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from image_archives import layer
from securebench.images.build.derived.compose import Additions, Base, add_image
from securebench.images.engine_images import load_into_engine
from securebench.images.store.index import ImageSource, Origin
from securebench.sandboxes.docker.driver import DockerDriver
from verifiers.repo_patch.repository_image import image_parts
from verifiers.repo_patch.runner_repos import repository_parts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from securebench.engine.client import Engine
    from securebench.images.store.image_store import ImageStore
    from securebench.sandboxes.base import SandboxDriver

HOSTILE_ENVIRONMENT = {
    "PATH": "/srv/project/bin:relative:/tmp/bin:/usr/local/bin:/usr/bin:/bin",
    "LD_PRELOAD": "/nonexistent/evil.so",
    "PYTHONPATH": "/srv/project/evil",
    "PYTHONOPTIMIZE": "1",
    "PYTEST_ADDOPTS": "--collect-only",
    "BASH_ENV": "/srv/project/evil.sh",
    "ENV": "/srv/project/evil.sh",
    "NODE_OPTIONS": "--require /srv/project/evil.js",
    "GIT_DIR": "/srv/project/evil",
    "JAVA_HOME": "/usr/lib/jvm/default",
    "VIRTUAL_ENV": "/srv/project/.venv",
}
"""Variables that an image may set, and that must not change a verdict.

Only ``JAVA_HOME`` and the trusted entries of ``PATH`` are passed to the tests. ``VIRTUAL_ENV`` would be passed, too, if
it were not inside the repository.
"""


@pytest.fixture(scope="session")
def _image(store: ImageStore, doomed_images: list[str]) -> str:
    reference = f"securebench-tests/project:{os.getpid()}"
    found = store.find("securebench/python:3.11")
    assert found is not None
    with store.incoming(Origin(ImageSource.ARCHIVE, "tests")) as incoming:
        made = incoming.take([layer(*image_parts(), *repository_parts())])
        base = Base(found.id, *store.documents(found.id))
        incoming.name(add_image(incoming, base, [made], Additions(environment=HOSTILE_ENVIRONMENT)), reference)
    doomed_images.append(reference)
    return reference


@pytest.fixture(scope="session")
def _in_engine(engine: Engine, store: ImageStore, _image: str) -> Iterator[None]:
    load_into_engine(engine, store, _image, lambda _line: None)
    yield
    engine.client.remove_image(_image, force=True)


@pytest.fixture
def image(driver: SandboxDriver, _image: str, request: pytest.FixtureRequest) -> str:
    """Return the name of an image that the driver can use."""
    if isinstance(driver, DockerDriver):
        request.getfixturevalue("_in_engine")
    return _image
