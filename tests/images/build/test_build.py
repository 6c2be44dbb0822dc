"""Building and checking a system image, in the store or on an engine.

A failed build leaves nothing. What a killed build left is removed later.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from engine_doubles import FakeEngine
from fake_registry import registry_with
from securebench.engine.client import connect
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
    """Return a recipe that is built quickly: a fake ``mmdebstrap`` outputs a tiny root file system."""
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
    """Return the real engine, and remove the test's images from it at the end."""
    yield engine
    for image in engine.client.images(filters={"label": f"{RECIPE_LABEL}={NAME}"}):
        engine.client.remove_image(image["Id"], force=True)


def _use_mmdebstrap(directory: Path, script: str) -> None:
    (directory / "mmdebstrap").write_text(f"#!/bin/sh\n{script}\n")
    (directory / "mmdebstrap").chmod(0o755)


def no_steps(_job: BuildScript, _log: Callable[[bytes], None]) -> AbstractContextManager[StepsResult | None]:
    """Fail the test: a system image has no steps."""
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
    """Return the paths that builds left: trees, work directories and blobs of the store, and build directories."""
    tops = ("trees", "work", "blobs/sha256")
    places = [path for top in tops if (store.directory / top).exists() for path in (store.directory / top).iterdir()]
    return [str(path) for path in (*places, *builds_directory().iterdir()) if path.suffix != ".log"]


def test_an_image_of_packages_is_in_the_store_with_its_name_and_configuration(
    own_store: ImageStore, recipe: SystemRecipe
) -> None:
    """An image built without an engine is unpacked in the store, with the recipe's reference and environment."""
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
    """If the machine cannot create sandboxes, the image is built, and the last report says that it was not checked."""
    stages: list[str] = []
    assert _builder(own_store, report=stages.append, outcome=None).build(recipe).id
    assert stages[-1].startswith("the image was not checked")


def test_an_image_that_fails_a_check_does_not_take_the_name(own_store: ImageStore, recipe: SystemRecipe) -> None:
    """L25: the previous image keeps the name, the new image is removed, and the error has the check's output."""
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
    """L25: whatever ``mmdebstrap`` wrote before it failed, no image, blob, tree or directory remains."""
    _use_mmdebstrap(tmp_path, script.format(root=tmp_path / "root.tar"))
    with pytest.raises(InfrastructureError):
        _builder(own_store).build(recipe)
    assert _builder(own_store).state(recipe).id == ""
    assert _left(own_store) == []


def test_building_again_moves_the_name(own_store: ImageStore, recipe: SystemRecipe) -> None:
    """A second build takes the name from the first image, which stays available by its id, for runs that use it."""
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
    """L25: a build killed during its checks leaves no named image; the next build and a prune remove its files."""
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
    """If a registry has the base, the engine builds on it, and the store's older image loses the name."""
    assert _builder(own_store).build(recipe).place == "store"
    (tmp_path / "Dockerfile").write_text("ARG BASE\nFROM ${BASE}\nENV MADE=yes\n")
    client = clean_engine.client
    with registry_with(tiny_root(), client.version()["Arch"]) as base:
        state = _builder(own_store, engine=clean_engine).build(replace(recipe, base=base))
        client.remove_image(base)
    assert state.place == "engine"
    config = client.inspect_image(REFERENCE)["Config"]  # type: ignore[no-untyped-call]  # not annotated in the stubs
    assert {"FROM_BASE=yes", "MADE=yes"} <= set(config["Env"])
    assert _left_on(clean_engine) == [state.id]


def _left_on(engine: Engine) -> list[str]:
    """Return the ids of the engine's images and containers that builds of the test's recipe created."""
    images = engine.client.images(filters={"label": f"{RECIPE_LABEL}={NAME}"})
    # A container has the labels of its image, so the recipe's label excludes containers of other recipes.
    containers = engine.client.containers(all=True, filters={"label": [TOKEN_LABEL, f"{RECIPE_LABEL}={NAME}"]})
    return [entry["Id"] for entry in (*images, *containers)]


@pytest.fixture
def built_on_engine(
    clean_engine: Engine, own_store: ImageStore, recipe: SystemRecipe, tmp_path: Path
) -> Iterator[Callable[[SystemRecipe], str]]:
    """Return a function that builds a recipe on the real engine, with a base from a registry on this machine."""
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
    """A check that does what a hardened container forbids fails. Its image gets no name and is removed."""
    with pytest.raises(ImageError) as caught:
        built_on_engine(replace(recipe, checks=(("/bin/sh", "-c", script),)))
    assert caught.value.code == "image-check-failed", why
    assert engine_build.find(clean_engine, recipe.reference) is None
    assert _left_on(clean_engine) == []


def test_an_engine_is_asked_for_a_hardened_container(recipe: SystemRecipe, tmp_path: Path) -> None:
    """A check runs without capabilities, without a network and not as root. Its root file system is read-only."""
    fake = FakeEngine(tmp_path / "engine.sock")
    fake.answer("POST .*/containers/create", {"Id": "made"}, status=201)
    fake.answer("POST .*/containers/made/start", status=204)
    fake.answer("POST .*/containers/made/wait", {"StatusCode": 3})
    fake.answer("GET .*/containers/made/json", {"Config": {"Tty": True}})
    fake.answer("GET .*/containers/made/logs", b"output")
    with (
        closing(fake),
        closing(connect([fake.endpoint])) as engine,
        pytest.raises(ImageError, match="exited with 3: output"),
    ):
        engine_build.finish(engine, recipe, "sha256:new", "token", lambda _stage: None)
    (asked,) = [body for _, path, body in fake.requests if path.endswith("/containers/create")]
    assert asked["User"] == "65534:65534"
    wanted = {
        "CapDrop": ["ALL"],
        "NetworkMode": "none",
        "ReadonlyRootfs": True,
        "SecurityOpt": ["no-new-privileges:true"],
        "Tmpfs": {"/tmp": "mode=1777"},
    }
    assert {name: asked["HostConfig"].get(name) for name in wanted} == wanted
    assert not any("/tag" in path for _, path, _ in fake.requests), "an image that fails a check gets no name"


@pytest.mark.engine
def test_an_engines_check_may_write_to_tmp(
    built_on_engine: Callable[[SystemRecipe], str], recipe: SystemRecipe
) -> None:
    """A check on an engine can write to /tmp, as in a sandbox."""
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
    """L25: a build on the engine is killed. The next build removes its leftovers, even if it builds in the store."""
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
