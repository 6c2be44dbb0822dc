"""Building an image: all of it, checked, or nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fake_registry import registry_with
from securebench.errors import ImageError, InfrastructureError
from securebench.images import build, registry
from securebench.images.bootstrap import Bootstrap
from securebench.images.build import RECIPE_LABEL, TOKEN_LABEL, build_image, image_state
from securebench.images.recipes import Recipe
from securebench.images.workshop import workshops_directory
from tiny_root import tiny_root

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from securebench.images.engine import Engine

pytestmark = pytest.mark.engine

NAME = "test-build"
REFERENCE = "securebench/test-build:1"
SPIN = ("/bin/sh", "-c", "while :; do :; done")


@pytest.fixture
def recipe(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recipe]:
    """Give a recipe that is made in a moment, by an mmdebstrap that hands out a tiny root file system."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(build, "find_bootstrap", lambda *_args, **_kwargs: Bootstrap((), "auto", signal.SIGTERM))
    monkeypatch.setattr(registry, "offers", lambda *_args: False)
    (tmp_path / "root.tar").write_bytes(tiny_root())
    _use_mmdebstrap(tmp_path, f'cat "{tmp_path}/root.tar"')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    yield Recipe(
        name=NAME,
        directory=tmp_path,
        reference=REFERENCE,
        summary="A shell.",
        base="registry.invalid/base:1",
        suite="bookworm",
        packages=("sh",),
        environment={"GREETING": 'hello "world"', "PATH": "/bin"},
        command=("/bin/sh",),
        checks=(("/bin/sh", "-c", "exit 0"),),
    )
    for image in engine.client.images(filters={"label": f"{RECIPE_LABEL}={NAME}"}):
        engine.client.remove_image(image["Id"], force=True)


def _use_mmdebstrap(directory: Path, script: str) -> None:
    (directory / "mmdebstrap").write_text(f"#!/bin/sh\n{script}\n")
    (directory / "mmdebstrap").chmod(0o755)


def _build(engine: Engine, recipe: Recipe) -> str:
    return build_image(engine, recipe, lambda _stage: None).id


def _left(engine: Engine) -> list[str]:
    """Return what our builds have in the engine: ids of images and containers, and directories on the disk."""
    images = engine.client.images(filters={"label": f"{RECIPE_LABEL}={NAME}"})
    # Containers have the labels of their images: another recipe's are none of ours.
    containers = engine.client.containers(all=True, filters={"label": [TOKEN_LABEL, f"{RECIPE_LABEL}={NAME}"]})
    return [
        *(image["Id"] for image in images),
        *(container["Id"] for container in containers),
        *(str(path) for path in workshops_directory().iterdir() if path.is_dir()),
    ]


def test_a_built_image_has_its_name_its_configuration_and_nothing_beside_it(engine: Engine, recipe: Recipe) -> None:
    """The reference means the new image, which has the recipe's environment and command."""
    assert image_state(engine, recipe).id == ""
    stages: list[str] = []
    state = build_image(engine, recipe, stages.append)
    assert state == image_state(engine, recipe)
    assert state.size_bytes > 0
    config = engine.client.inspect_image(REFERENCE)["Config"]  # type: ignore[no-untyped-call]  # so the stubs
    assert sorted(config["Env"]) == ['GREETING=hello "world"', "PATH=/bin"]
    assert config["Cmd"] == ["/bin/sh"]
    assert _left(engine) == [state.id]
    assert any("Debian's packages" in stage for stage in stages)
    assert any("checking" in stage for stage in stages)


def test_where_a_registry_answers_its_image_is_the_base(
    engine: Engine, recipe: Recipe, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The registry comes first: no package is asked for where it has the base."""
    monkeypatch.undo()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (tmp_path / "Dockerfile").write_text("ARG BASE\nFROM ${BASE}\nENV MADE=yes\n")
    with registry_with(tiny_root(), engine.client.version()["Arch"]) as base:
        state = build_image(engine, replace(recipe, base=base), lambda _stage: None)
        engine.client.remove_image(base)
    config = engine.client.inspect_image(REFERENCE)["Config"]  # type: ignore[no-untyped-call]  # so the stubs
    assert {"FROM_BASE=yes", "MADE=yes"} <= set(config["Env"])
    assert _left(engine) == [state.id]


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (": >/etc/probe", "the root is read-only"),
        ("kill -0 1 && : >/proc/sys/kernel/hostname", "no privilege is left"),
        (": >/root-probe || exit 9", "nothing is written beside /tmp"),
    ],
)
def test_checks_run_where_a_sandbox_would(engine: Engine, recipe: Recipe, script: str, why: str) -> None:
    """A check that needs more than a hardened container has fails, so an image that needs it gets no name."""
    with pytest.raises(ImageError) as caught:
        _build(engine, replace(recipe, checks=(("/bin/sh", "-c", script),)))
    assert caught.value.code == "image-check-failed", why
    assert _left(engine) == []


def test_a_check_may_write_to_tmp(engine: Engine, recipe: Recipe) -> None:
    """As in a sandbox, /tmp is there to be written."""
    assert _build(engine, replace(recipe, checks=(("/bin/sh", "-c", ": >/tmp/probe"),)))


def test_an_image_that_fails_a_check_does_not_take_the_name(engine: Engine, recipe: Recipe) -> None:
    """L25: what had the name keeps it; the new image is gone; the error has the command and its output."""
    before = _build(engine, recipe)
    with pytest.raises(ImageError, match="ended with 3: too old") as caught:
        _build(engine, replace(recipe, checks=(("/bin/sh", "-c", "echo too old; exit 3"),), command=("/bin/other",)))
    assert caught.value.code == "image-check-failed"
    assert image_state(engine, recipe).id == before
    assert _left(engine) == [before]


@pytest.mark.parametrize(
    "script",
    [
        "exit 1",
        'head -c 100000 "{root}"; exit 1',
        'cat "{root}"; exit 1',
        "echo this is no archive",
    ],
    ids=["nothing", "half", "whole-then-failure", "rubbish"],
)
def test_a_failed_build_leaves_nothing(engine: Engine, recipe: Recipe, tmp_path: Path, script: str) -> None:
    """L25: whatever the package tool wrote before it failed, no image, container or directory stays."""
    _use_mmdebstrap(tmp_path, script.format(root=tmp_path / "root.tar"))
    with pytest.raises(InfrastructureError):
        _build(engine, recipe)
    assert image_state(engine, recipe).id == ""
    assert _left(engine) == []


def test_building_again_moves_the_name(engine: Engine, recipe: Recipe) -> None:
    """A second build replaces the image under its name; the first stays for a run that works with its id."""
    first = _build(engine, recipe)
    second = _build(engine, replace(recipe, command=("/bin/sh", "-i")))
    assert image_state(engine, recipe).id == second != first
    assert engine.client.inspect_image(first)["RepoTags"] == []  # type: ignore[no-untyped-call]  # so the stubs


KILLED_BUILD = """
import sys
from dataclasses import replace
from pathlib import Path
from securebench.images import registry
from securebench.images.build import build_image
from securebench.images.engine import connect
from securebench.images.recipes import Recipe
registry.offers = lambda *_: False
import signal
from securebench.images import build
from securebench.images.bootstrap import Bootstrap
build.find_bootstrap = lambda *_, **__: Bootstrap((), "auto", signal.SIGTERM)
recipe = Recipe(name={name!r}, directory=Path("/"), reference={reference!r}, summary="", base="registry.invalid/b:1",
                suite="bookworm", packages=("sh",), environment={{}}, command=("/bin/sh",), checks=({check!r},))
build_image(connect(), recipe, lambda stage: print(stage, flush=True))
"""


@pytest.mark.timeout(60)
def test_a_killed_build_is_cleared_by_the_next(engine: Engine, recipe: Recipe) -> None:
    """L25: killed while its image is checked, it leaves no name; the next build removes its image and container."""
    code = KILLED_BUILD.format(name=NAME, reference=REFERENCE, check=SPIN)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as killed:
        assert killed.stdout is not None
        for stage in killed.stdout:
            if stage.startswith("checking"):
                break
        while not engine.client.containers(filters={"label": TOKEN_LABEL}):
            time.sleep(0.05)
        killed.kill()
    assert image_state(engine, recipe).id == ""
    assert len(_left(engine)) == 3, "an image, a container and a directory"
    image = _build(engine, recipe)
    assert _left(engine) == [image]
