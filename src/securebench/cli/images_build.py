"""Build the images of recipes one after another, and report each result."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from securebench.engine.client import Engine
    from securebench.errors import SecureBenchError
    from securebench.images.build.build import ImageState
    from securebench.images.build.recipe_kinds import Recipe

Stages: TypeAlias = "Callable[[str], AbstractContextManager[Callable[[str], None]]]"
"""Takes the name of a recipe. Returns a context manager that yields a function to show the build's current step."""

_SHORT_ID: Final = 19


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """An image that was built, or an existing one that was kept.

    ``commit`` is the value of the label ``org.securebench.commit``. It is empty if the image lacks this label or is not
    in the store. ``seconds`` is how long the build took, ``None`` for a kept image. ``because`` says why an existing
    image was out of date, and is otherwise empty.
    """

    state: ImageState
    seconds: float | None
    commit: str
    because: str = ""

    def as_dict(self) -> dict[str, object]:
        """Return the result as JSON."""
        return {
            "name": self.state.recipe.name,
            "reference": self.state.recipe.reference,
            "id": self.state.id,
            "place": self.state.place,
            "size_bytes": self.state.size_bytes,
            "built": self.seconds is not None,
            "seconds": None if self.seconds is None else round(self.seconds, 1),
            "commit": self.commit or None,
            "because": self.because or None,
            "error": None,
        }

    def as_line(self) -> str:
        """Return the result as one line."""
        what = f"{self.state.recipe.reference} ({self.state.id[:_SHORT_ID]})"
        name = self.state.recipe.name
        if self.seconds is None:
            return f"{name}: {what} already exists"
        return f"{name}: built {what} in {self.seconds:.0f} s{f' ({self.because})' if self.because else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NotBuilt:
    """A recipe whose image could not be built, and why."""

    recipe: Recipe
    error: SecureBenchError

    def as_dict(self) -> dict[str, object]:
        """Return the result as JSON."""
        error = {"code": self.error.code, "message": self.error.message, "hint": self.error.hint}
        return {"name": self.recipe.name, "reference": self.recipe.reference, "built": False, "error": error}

    def as_line(self) -> str:
        """Return the result as one line. The whole error was printed when it happened."""
        return f"{self.recipe.name}: NOT built: {self.error.message.splitlines()[0]} [{self.error.code}]"


def _base_images(_ctx: click.Context, _option: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    """Return a dictionary that maps FROM to TO for each text ``FROM=TO``. Raises ``click.BadParameter``."""
    return dict(map(_base_image, texts))


def _base_image(text: str) -> tuple[str, str]:
    from securebench.errors import ConfigError
    from securebench.images.reference import check_reference

    old, equals, new = text.partition("=")
    if not equals:
        raise click.BadParameter(f"{text!r} is not FROM=TO")
    try:
        check_reference(old)
        check_reference(new)
    except ConfigError as error:
        raise click.BadParameter(error.message) from None
    return old, new


base_image_option = click.option(
    "--base-image",
    "base_images",
    multiple=True,
    callback=_base_images,
    metavar="FROM=TO",
    help="In Dockerfiles, replace the base image FROM with the image TO. May be repeated.",
)


def with_bases(recipe: Recipe, bases: Mapping[str, str]) -> Recipe:
    """Return a Dockerfile recipe with its base images replaced as in ``bases``, or any other recipe unchanged."""
    from securebench.images.build.recipe_kinds import DockerfileRecipe

    if not isinstance(recipe, DockerfileRecipe):
        return recipe
    return replace(recipe, base_images={**recipe.base_images, **bases})


def build_all(
    engine: Engine | None, recipes: Sequence[Recipe], stages: Stages, *, rebuild: bool, install_tools: bool
) -> Iterator[Built | NotBuilt]:
    """Build images that are missing or out of date, or all images if ``rebuild`` is set. Yield each result.

    If a recipe fails, only the recipes based on its image are skipped.
    """
    from securebench.errors import ImageError, SecureBenchError
    from securebench.images.build.recipe_digest import base_references

    failed: set[str] = set()
    for recipe in recipes:
        try:
            if base := next((base for base in base_references(recipe) if base in failed), ""):
                raise ImageError(f"its base {base} was not built", code="image-unavailable")
            yield _built(engine, recipe, stages, rebuild=rebuild, install_tools=install_tools)
        except SecureBenchError as error:
            failed.add(recipe.reference)
            yield NotBuilt(recipe=recipe, error=error)


def summary_line(done: Sequence[Built | NotBuilt]) -> str:
    """Return a line that says how many images were built, how many already existed, and how many failed."""
    failed = sum(isinstance(one, NotBuilt) for one in done)
    there = sum(isinstance(one, Built) and one.seconds is None for one in done)
    return f"{len(done) - failed - there} built, {there} already existed, {failed} failed"


def _built(engine: Engine | None, recipe: Recipe, stages: Stages, *, rebuild: bool, install_tools: bool) -> Built:
    from securebench.cli.images_sandboxes import BuildSandboxes
    from securebench.images.build.build import Builder
    from securebench.images.build.derived.compose import COMMIT_LABEL
    from securebench.images.store.image_store import ImageStore

    store = ImageStore()
    with stages(recipe.name) as report, BuildSandboxes(report) as sandboxes:
        builder = Builder(store, engine, report, sandboxes.check, sandboxes.steps, install_tools)
        before = builder.state(recipe)
        started = time.monotonic()
        is_there = bool(before.id) and not before.stale and not rebuild
        if before.stale:
            report(f"building again: {before.stale}")
        state = before if is_there else builder.build(recipe)
        seconds = None if is_there else time.monotonic() - started
    commit = store.labels(recipe.reference).get(COMMIT_LABEL, "") if state.place == "store" else ""
    return Built(state=state, seconds=seconds, commit=commit, because=before.stale)
