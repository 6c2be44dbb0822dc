"""Building an image: all of it, checked, or nothing. In the store without an engine, on an engine with a registry."""

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
from securebench.images.build import build, engine_build, registry_base
from securebench.images.build.bootstrap import Bootstrap
from securebench.images.build.build import Builder, ImageState
from securebench.images.build.directory import builds_directory
from securebench.images.build.engine_build import RECIPE_LABEL, TOKEN_LABEL
from securebench.images.build.recipe_kinds import SystemRecipe
from securebench.images.store.index import ImageSource
from tiny_root import tiny_root

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from securebench.engine.client import Engine
    from securebench.images.build.derived.build import BuildScript, StepsResult
    from securebench.images.model import ResolvedImage
    from securebench.images.store.image_store import ImageStore

NAME = "test-build"
REFERENCE = "securebench/test-build:1"
SPIN = ("/bin/sh", "-c", "while :; do :; done")


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SystemRecipe:
    """Give a recipe that is made in a moment, by an mmdebstrap that hands out a tiny root file system."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(build, "find_bootstrap", lambda *_args, **_kwargs: Bootstrap((), "auto", signal.SIGTERM))
    (tmp_path / "root.tar").write_bytes(tiny_root())
    _use_mmdebstrap(tmp_path, f'cat "{tmp_path}/root.tar"')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return SystemRecipe(
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


@pytest.fixture
def clean_engine(engine: Engine) -> Iterator[Engine]:
    """Give the real engine, and remove from it what a test has built."""
    yield engine
    for image in engine.client.images(filters={"label": f"{RECIPE_LABEL}={NAME}"}):
        engine.client.remove_image(image["Id"], force=True)


def _use_mmdebstrap(directory: Path, script: str) -> None:
    (directory / "mmdebstrap").write_text(f"#!/bin/sh\n{script}\n")
    (directory / "mmdebstrap").chmod(0o755)


def no_steps(_job: BuildScript, _log: Callable[[bytes], None]) -> AbstractContextManager[StepsResult | None]:
    """Stand in for what runs the steps of a derived image."""
    raise AssertionError("a whole system has no steps")


def _builder(
    store: ImageStore,
    *,
    engine: Engine | None = None,
    report: Callable[[str], None] = lambda _stage: None,
    outcome: tuple[int, str] | None = (0, ""),
) -> Builder:
    def check(image: ResolvedImage, _command: tuple[str, ...]) -> tuple[int, str] | None:
        assert store.find(REFERENCE) is None or store.find(REFERENCE) != image, "it has no name before it is checked"
        return outcome

    return Builder(store, engine, report, check, no_steps)


def _left(store: ImageStore) -> list[str]:
    """Return what builds have left: images of the store, their trees and blobs, and directories on the disk."""
    tops = ("trees", "work", "blobs/sha256")
    places = [path for top in tops if (store.directory / top).exists() for path in (store.directory / top).iterdir()]
    return [str(path) for path in (*places, *builds_directory().iterdir()) if path.suffix != ".log"]


def test_an_image_of_packages_is_in_the_store_with_its_name_and_configuration(
    own_store: ImageStore, recipe: SystemRecipe
) -> None:
    """No engine is asked: the reference means the new image, which has the recipe's environment, and is unpacked."""
    stages: list[str] = []
    builder = _builder(own_store, report=stages.append)
    assert builder.state(recipe).id == ""
    state = builder.build(recipe)
    found = own_store.find(REFERENCE)
    assert found is not None
    assert state == ImageState(recipe, found.id, found.size_bytes, "store")
    assert found.environment == {"GREETING": 'hello "world"', "PATH": "/bin"}
    (entry,) = own_store.entries()
    assert (entry.source, entry.unpacked) == (ImageSource.RECIPE, True)
    assert any("Debian's packages" in stage for stage in stages)
    assert any("checking: /bin/sh" in stage for stage in stages)


def test_without_anything_to_make_a_sandbox_with_it_is_said_that_nothing_was_checked(
    own_store: ImageStore, recipe: SystemRecipe
) -> None:
    """A machine that only builds has its image, and knows."""
    stages: list[str] = []
    assert _builder(own_store, report=stages.append, outcome=None).build(recipe).id
    assert stages[-1].startswith("the image was not checked")


def test_an_image_that_fails_a_check_does_not_take_the_name(own_store: ImageStore, recipe: SystemRecipe) -> None:
    """L25: what had the name keeps it; the new image is gone; the error has the command and its output."""
    before = _builder(own_store).build(recipe).id
    left = _left(own_store)
    with pytest.raises(ImageError, match="exited with 3: too old") as caught:
        _builder(own_store, outcome=(3, "too old")).build(replace(recipe, command=("/bin/other",)))
    assert caught.value.code == "image-check-failed"
    assert _builder(own_store).state(recipe).id == before
    assert sorted(_left(own_store)) == sorted(left)


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
def test_a_failed_build_leaves_nothing(
    own_store: ImageStore, recipe: SystemRecipe, tmp_path: Path, script: str
) -> None:
    """L25: whatever the package tool wrote before it failed, no image, blob, tree or directory stays."""
    _use_mmdebstrap(tmp_path, script.format(root=tmp_path / "root.tar"))
    with pytest.raises(InfrastructureError):
        _builder(own_store).build(recipe)
    assert _builder(own_store).state(recipe).id == ""
    assert _left(own_store) == []


def test_building_again_moves_the_name(own_store: ImageStore, recipe: SystemRecipe) -> None:
    """A second build replaces the image under its name; the first stays for a run that works with its id."""
    builder = _builder(own_store)
    first = builder.build(recipe).id
    second = builder.build(replace(recipe, command=("/bin/sh", "-i"))).id
    assert builder.state(recipe).id == second != first
    assert own_store.find(first) is not None


KILLED_BUILD = """
import signal, sys, time
from pathlib import Path
from securebench.images.build import build
from securebench.images.build.bootstrap import Bootstrap
from securebench.images.build.recipe_kinds import SystemRecipe
from securebench.images.store.image_store import ImageStore
build.find_bootstrap = lambda *_, **__: Bootstrap((), "auto", signal.SIGTERM)
recipe = SystemRecipe(name={name!r}, directory=Path("/"), reference={reference!r}, summary="",
                base="registry.invalid/b:1", suite="bookworm", packages=("sh",), environment={{}},
                command=("/bin/sh",), checks=(("true",),))
build.Builder(ImageStore(), None, lambda stage: print(stage, flush=True), lambda *_: time.sleep(60), None
).build(recipe)
"""


@pytest.mark.timeout(60)
def test_a_killed_build_is_cleared_by_the_next(own_store: ImageStore, recipe: SystemRecipe) -> None:
    """L25: killed while its image is checked, it leaves no name; the next build removes its image and directories."""
    code = KILLED_BUILD.format(name=NAME, reference=REFERENCE)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as killed:
        assert killed.stdout is not None
        for stage in killed.stdout:
            if stage.startswith("checking"):
                break
        killed.kill()
    assert own_store.find(REFERENCE) is None
    assert own_store.entries() == ()
    assert len(_left(own_store)) == 6, "a workshop, a place of work, a tree, a manifest, a configuration and a layer"
    _builder(own_store).build(recipe)
    own_store.prune()
    assert len(_left(own_store)) == 4


@pytest.mark.engine
def test_where_a_registry_answers_its_image_is_the_base(
    clean_engine: Engine, own_store: ImageStore, recipe: SystemRecipe, tmp_path: Path
) -> None:
    """The registry comes first: the engine builds, and no older image of the store goes before the new one."""
    assert _builder(own_store).build(recipe).place == "store"
    (tmp_path / "Dockerfile").write_text("ARG BASE\nFROM ${BASE}\nENV MADE=yes\n")
    client = clean_engine.client
    with registry_with(tiny_root(), client.version()["Arch"]) as base:
        state = _builder(own_store, engine=clean_engine).build(replace(recipe, base=base))
        client.remove_image(base)
    assert state.place == "engine"
    config = client.inspect_image(REFERENCE)["Config"]  # type: ignore[no-untyped-call]  # so the stubs
    assert {"FROM_BASE=yes", "MADE=yes"} <= set(config["Env"])
    assert _left_on(clean_engine) == [state.id]


def _left_on(engine: Engine) -> list[str]:
    """Return what our builds have in the engine: ids of images and containers."""
    images = engine.client.images(filters={"label": f"{RECIPE_LABEL}={NAME}"})
    # Containers have the labels of their images: another recipe's are none of ours.
    containers = engine.client.containers(all=True, filters={"label": [TOKEN_LABEL, f"{RECIPE_LABEL}={NAME}"]})
    return [entry["Id"] for entry in (*images, *containers)]


@pytest.fixture
def built_on_engine(
    clean_engine: Engine, own_store: ImageStore, recipe: SystemRecipe, tmp_path: Path
) -> Iterator[Callable[[SystemRecipe], str]]:
    """Give a function that builds a recipe on the real engine, from a registry of this machine."""
    (tmp_path / "Dockerfile").write_text("ARG BASE\nFROM ${BASE}\nENV MADE=yes\n")
    with registry_with(tiny_root(), clean_engine.client.version()["Arch"]) as base:
        yield lambda wanted: _builder(own_store, engine=clean_engine).build(replace(wanted, base=base)).id
        clean_engine.client.remove_image(base)


@pytest.mark.engine
@pytest.mark.parametrize(
    ("script", "why"),
    [
        (": >/etc/probe", "the root is read-only"),
        ("kill -0 1 && : >/proc/sys/kernel/hostname", "no privilege is left"),
        (": >/root-probe || exit 9", "nothing is written beside /tmp"),
    ],
)
def test_an_engines_checks_run_where_a_sandbox_would(
    clean_engine: Engine, built_on_engine: Callable[[SystemRecipe], str], recipe: SystemRecipe, script: str, why: str
) -> None:
    """A check that needs more than a hardened container has fails, so an image that needs it gets no name."""
    with pytest.raises(ImageError) as caught:
        built_on_engine(replace(recipe, checks=(("/bin/sh", "-c", script),)))
    assert caught.value.code == "image-check-failed", why
    assert engine_build.find(clean_engine, recipe.reference) is None
    assert _left_on(clean_engine) == []


@pytest.mark.engine
def test_an_engines_check_may_write_to_tmp(
    built_on_engine: Callable[[SystemRecipe], str], recipe: SystemRecipe
) -> None:
    """As in a sandbox, /tmp is there to be written."""
    assert built_on_engine(replace(recipe, checks=(("/bin/sh", "-c", ": >/tmp/probe"),)))


KILLED_ON_ENGINE = """
from pathlib import Path
from securebench.images.build.build import Builder
from securebench.engine.client import connect
from securebench.images.build.recipe_kinds import SystemRecipe
from securebench.images.store.image_store import ImageStore
recipe = SystemRecipe(name={name!r}, directory=Path({directory!r}), reference={reference!r}, summary="", base={base!r},
                suite="bookworm", packages=("sh",), environment={{}}, command=("/bin/sh",), checks=({check!r},))
Builder(ImageStore(), connect(), lambda stage: print(stage, flush=True), lambda *_: None, None).build(recipe)
"""


@pytest.mark.engine
@pytest.mark.timeout(60)
def test_a_build_that_is_killed_on_the_engine_is_cleared_by_the_next(
    clean_engine: Engine,
    own_store: ImageStore,
    recipe: SystemRecipe,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """L25: also where the next build makes its image in the store."""
    (tmp_path / "Dockerfile").write_text("ARG BASE\nFROM ${BASE}\nENV MADE=yes\n")
    client = clean_engine.client
    with registry_with(tiny_root(), client.version()["Arch"]) as base:
        code = KILLED_ON_ENGINE.format(name=NAME, directory=str(tmp_path), reference=REFERENCE, base=base, check=SPIN)
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as killed:
            assert killed.stdout is not None
            for stage in killed.stdout:
                if stage.startswith("checking"):
                    break
            while not client.containers(filters={"label": TOKEN_LABEL}):
                time.sleep(0.05)
            killed.kill()
        client.remove_image(base)
    assert engine_build.find(clean_engine, recipe.reference) is None
    assert len(_left_on(clean_engine)) == 2, "an image and a container"
    monkeypatch.setattr(registry_base, "offers", lambda *_args: False)
    assert _builder(own_store, engine=clean_engine).build(recipe).place == "store"
    assert _left_on(clean_engine) == []
