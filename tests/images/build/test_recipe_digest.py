"""The labels that record what an image was built from, and when an image is stale."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from securebench.images.build.recipe_digest import BASES_LABEL, DIGEST_LABEL, build_labels, recipe_digest, why_stale
from securebench.images.build.recipe_kinds import DerivedRecipe, DockerfileRecipe, GitSource, PypiSource, SystemRecipe

IDS = {"base:1": "sha256:aa", "other:1": "sha256:bb"}


def here(reference: str) -> str:
    """Return the id of an image on a machine with two images, or an empty string."""
    return IDS.get(reference, "")


@pytest.fixture
def dockerfile(tmp_path: Path) -> DockerfileRecipe:
    """Return a recipe with a Dockerfile and a build context of one file."""
    (tmp_path / "context").mkdir()
    (tmp_path / "context" / "a.txt").write_text("a")
    (tmp_path / "Dockerfile").write_text("FROM upstream:1\nCOPY . /app\n")
    return DockerfileRecipe(
        name="d",
        directory=tmp_path,
        reference="securebench/d:1",
        summary="x",
        checks=(),
        dockerfile=tmp_path / "Dockerfile",
        context=tmp_path / "context",
        base_images={"upstream:1": "base:1"},
        build_args={},
        network="default",
    )


def derived(directory: Path, **changes: object) -> DerivedRecipe:
    """Return a derived recipe with these ``changes``."""
    fields = {
        "name": "d",
        "directory": directory,
        "reference": "securebench/d:1",
        "summary": "x",
        "checks": (),
        "base": "base:1",
        "workdir": "/app",
        "environment": {},
        "files": {},
        "python": "3.11",
        "requirements": ("a==1",),
        "source": PypiSource(name="a", version="1", sha256="0" * 64),
        "install": (),
        "run": (),
    }
    return DerivedRecipe(**{**fields, **changes})  # type: ignore[arg-type]


def test_what_changes_an_image_of_a_dockerfile(dockerfile: DockerfileRecipe) -> None:
    """A changed Dockerfile, context, recipe field or base image makes the image stale; a missing base does not."""
    labels = build_labels(dockerfile, here)
    assert why_stale(dockerfile, labels, here) == ""
    assert why_stale(dockerfile, labels, {"base:1": "sha256:cc"}.get) == "its base base:1 has changed"  # type: ignore[arg-type]
    assert why_stale(dockerfile, labels, lambda _: "") == ""
    for changed in (
        replace(dockerfile, base_images={"upstream:1": "other:1"}),
        replace(dockerfile, build_args={"A": "1"}),
        replace(dockerfile, network="none"),
        replace(dockerfile, checks=(("true",),)),
    ):
        assert why_stale(changed, labels, here) == "its recipe has changed"
    (dockerfile.context / "a.txt").write_text("b")
    assert why_stale(dockerfile, labels, here) == "its recipe has changed"
    (dockerfile.context / "a.txt").write_text("a")
    assert why_stale(dockerfile, labels, here) == ""
    dockerfile.dockerfile.write_text("FROM upstream:1\n")
    assert why_stale(dockerfile, labels, here) == "its recipe has changed"


def test_what_changes_a_derived_image(tmp_path: Path) -> None:
    """Requirements, steps, source and environment affect the digest; name, summary and a clone's path do not."""
    recipe = derived(tmp_path)
    labels = build_labels(recipe, here)
    assert labels[BASES_LABEL] == "sha256:aa"
    for changed in (
        derived(tmp_path, requirements=("a==2",)),
        derived(tmp_path, install=(("true",),)),
        derived(tmp_path, source=PypiSource(name="a", version="2", sha256="0" * 64)),
        derived(tmp_path, environment={"A": "b"}),
    ):
        assert why_stale(changed, labels, here) == "its recipe has changed"
    assert why_stale(derived(tmp_path / "elsewhere", name="e", summary="y"), labels, here) == ""
    clones = [derived(tmp_path, source=GitSource(commit="a" * 40, path=Path(place))) for place in ("/x", "/y")]
    assert recipe_digest(clones[0]) == recipe_digest(clones[1])


def test_an_image_without_labels_is_used_as_it_is(tmp_path: Path) -> None:
    """An image without the label of the recipe's digest, such as an imported one, is never stale."""
    assert why_stale(derived(tmp_path), {"of": "another"}, here) == ""
    assert why_stale(derived(tmp_path), {DIGEST_LABEL: ""}, here) == "its recipe has changed"


def test_a_whole_system_is_its_packages_and_its_dockerfile(tmp_path: Path) -> None:
    """The digest covers the packages and the Dockerfile of a system recipe, although a build uses only one of them."""
    recipe = SystemRecipe(
        name="s",
        directory=tmp_path,
        reference="securebench/s:1",
        summary="x",
        checks=(),
        base="python:3.11",
        suite="bookworm",
        packages=("git",),
        environment={},
        command=("python3",),
    )
    plain = recipe_digest(recipe)
    assert plain != recipe_digest(replace(recipe, packages=("git", "curl")))
    (tmp_path / "Dockerfile").write_text("ARG BASE\n")
    assert plain != recipe_digest(recipe)
