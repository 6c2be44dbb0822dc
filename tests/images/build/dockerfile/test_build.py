"""Building a Dockerfile on a real engine, with a base image from the store."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from securebench.errors import EngineError, ImageError, InfrastructureError
from securebench.images.build.build import Builder
from securebench.images.build.directory import builds_directory
from securebench.images.build.engine_build import RECIPE_LABEL
from securebench.images.build.recipe_kinds import DockerfileRecipe
from securebench.images.store.archive import RootConfig, add_root
from securebench.images.store.index import ImageSource, Origin
from tiny_root import tiny_root

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from securebench.engine.client import Engine
    from securebench.images.store.image_store import ImageStore

NAME = "test-dockerfile"
REFERENCE = "securebench/test-dockerfile:1"
BASE = "securebench/test-dockerfile-base:1"
DOCKERFILE = """\
ARG TAG=1
FROM registry.invalid/base:${TAG} AS build
ARG SAID=nothing
RUN ["/bin/sh", "-c", "echo $SAID > /made"]
FROM registry.invalid/base:1
COPY --from=build /made /made
COPY . /context/
WORKDIR /context
"""


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DockerfileRecipe:
    """Return a recipe whose Dockerfile names a base image that no registry has. The recipe replaces that image."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    context = tmp_path / "recipe" / "environment"
    context.mkdir(parents=True)
    (context / "Dockerfile").write_text(DOCKERFILE)
    (context / ".dockerignore").write_text("*.log\n")
    (context / "note.txt").write_text("note\n")
    (context / "x.log").write_text("log\n")
    return DockerfileRecipe(
        name=NAME,
        directory=tmp_path / "recipe",
        reference=REFERENCE,
        summary="One.",
        checks=(("/bin/sh", "-c", "read made </made && test $made = hello"),),
        dockerfile=context / "Dockerfile",
        context=context,
        base_images={"registry.invalid/base:1": BASE},
        build_args={"SAID": "hello"},
        network="none",
    )


@pytest.fixture
def based(own_store: ImageStore) -> ImageStore:
    """Return a store with the image that replaces the base."""
    with own_store.incoming(Origin(ImageSource.ARCHIVE)) as incoming:
        incoming.name(add_root(incoming, [tiny_root()], RootConfig({"PATH": "/bin"}), "the base"), BASE)
    return own_store


@pytest.fixture
def clean(engine: Engine) -> Iterator[Engine]:
    """Yield the real engine, and afterwards remove the images that the test has built."""
    yield engine
    for reference in (REFERENCE, BASE):
        if engine.client.images(name=reference):
            engine.client.remove_image(reference, force=True)


def _build(
    store: ImageStore, engine: Engine | None, recipe: DockerfileRecipe, report: Callable[[str], None] = lambda _: None
) -> str:
    def no_steps(*_: object) -> None:
        raise AssertionError("an engine runs them")

    return Builder(store, engine, report, lambda *_: (0, ""), no_steps).build(recipe).id  # type: ignore[arg-type]


def _labelled(engine: Engine) -> list[str]:
    # A container has the labels of its image.
    client, filters = engine.client, {"label": f"{RECIPE_LABEL}={NAME}"}
    return [found["Id"] for found in (*client.images(filters=filters), *client.containers(all=True, filters=filters))]


@pytest.mark.engine
def test_a_dockerfile_is_built_on_another_base_and_taken_into_the_store(
    clean: Engine, based: ImageStore, recipe: DockerfileRecipe
) -> None:
    """Stages, build arguments and the context work without a registry. Engine and store both have the image."""
    stages: list[str] = []
    image_id = _build(based, clean, recipe, stages.append)
    found = based.find(REFERENCE)
    assert found is not None
    assert found.id == image_id
    assert found.workdir == "/context"
    with based.lease(image_id) as tree:
        assert (tree.root / "made").read_text() == "hello\n"
        assert {path.name for path in (tree.root / "context").iterdir()} == {"Dockerfile", "note.txt"}
    assert _labelled(clean) == [clean.client.inspect_image(REFERENCE)["Id"]]  # type: ignore[no-untyped-call]
    (log,) = builds_directory().glob("*.log")
    assert "Step 1/" in log.read_text()
    assert any(stage.startswith("Step ") for stage in stages)


@pytest.mark.engine
def test_a_step_that_fails_leaves_nothing_but_its_log(
    clean: Engine, based: ImageStore, recipe: DockerfileRecipe
) -> None:
    """L25: after a failed step, the engine has no image or container of the build, and the store has no name of it.

    The error contains the output of the step.
    """
    recipe.dockerfile.write_text(DOCKERFILE + 'RUN ["/bin/sh", "-c", "echo no such thing; exit 4"]\n')
    with pytest.raises(ImageError, match="no such thing") as caught:
        _build(based, clean, recipe)
    assert caught.value.code == "image-build-failed"
    assert _labelled(clean) == []
    assert based.find(REFERENCE) is None


@pytest.mark.engine
def test_a_check_that_fails_keeps_the_name_from_it(clean: Engine, based: ImageStore, recipe: DockerfileRecipe) -> None:
    """L25: an image whose check fails gets no name in the store, and is removed from the engine."""
    with pytest.raises(ImageError) as caught:
        _build(based, clean, replace(recipe, checks=(("/bin/sh", "-c", "exit 3"),)))
    assert caught.value.code == "image-check-failed"
    assert _labelled(clean) == []
    assert based.find(REFERENCE) is None


@pytest.mark.engine
def test_a_base_that_nobody_has_is_named_with_what_to_do(
    clean: Engine, based: ImageStore, recipe: DockerfileRecipe
) -> None:
    """For a base image that is not available, the hint contains the option that replaces it."""
    with pytest.raises(InfrastructureError) as caught:
        _build(based, clean, replace(recipe, base_images={}))
    assert "--base-image registry.invalid/base:1=IMAGE" in caught.value.hint


@pytest.mark.engine
def test_an_image_with_a_history_that_it_should_not_show_is_warned_of(
    clean: Engine, based: ImageStore, recipe: DockerfileRecipe
) -> None:
    """F01: if an image from a Dockerfile contains traces of later history, it is built, and a warning is reported."""
    git = recipe.context / "repository" / ".git"
    (git / "objects").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "ORIG_HEAD").write_text("0" * 40 + "\n")
    stages: list[str] = []
    assert _build(based, clean, recipe, stages.append)
    warning = "warning: an agent might find the solution in /context/repository: ORIG_HEAD"
    assert [stage for stage in stages if stage.startswith(warning)]


def test_without_an_engine_it_is_said_what_to_do(
    based: ImageStore, recipe: DockerfileRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an engine, a Dockerfile is refused. The hint contains the command that imports an image."""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(EngineError, match="needs an engine") as caught:
        _build(based, None, recipe)
    assert caught.value.code == "engine-unavailable"
    assert "images import" in caught.value.hint
