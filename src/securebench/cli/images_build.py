"""Building images of recipes, one after another, and saying what came of each."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from securebench.images.build import ImageState
    from securebench.images.engine import Engine
    from securebench.images.recipe_kinds import Recipe

Stages: TypeAlias = "Callable[[str], AbstractContextManager[Callable[[str], None]]]"
"""Gives, for a name, a function that shows what is done."""

_SHORT_ID: Final = 19


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """One image that is there now. ``seconds`` is ``None`` for one that was there before. ``commit`` may be empty."""

    state: ImageState
    seconds: float | None
    commit: str

    def as_dict(self) -> dict[str, object]:
        """Return it for a program."""
        return {
            "name": self.state.recipe.name,
            "reference": self.state.recipe.reference,
            "id": self.state.id,
            "place": self.state.place,
            "size_bytes": self.state.size_bytes,
            "built": self.seconds is not None,
            "seconds": None if self.seconds is None else round(self.seconds, 1),
            "commit": self.commit or None,
        }

    def as_line(self) -> str:
        """Return it for people."""
        what = f"{self.state.recipe.reference} ({self.state.id[:_SHORT_ID]})"
        name = self.state.recipe.name
        return f"{name}: {what} is there" if self.seconds is None else f"{name}: built {what} in {self.seconds:.0f} s"


def parse_base_image(text: str) -> tuple[str, str]:
    """Return FROM and TO of ``FROM=TO``. Raises ``click.BadParameter``."""
    from securebench.errors import ConfigError
    from securebench.images.reference import check_reference

    old, equals, new = text.partition("=")
    try:
        check_reference(old)
        check_reference(new)
    except ConfigError as error:
        raise click.BadParameter(error.message, param_hint="--base-image") from None
    if not equals:
        raise click.BadParameter(f"{text!r} is not FROM=TO", param_hint="--base-image")
    return old, new


def with_bases(recipe: Recipe, bases: Mapping[str, str]) -> Recipe:
    """Return the recipe with other images in place of those that its Dockerfile starts from."""
    from securebench.images.recipe_kinds import DockerfileRecipe

    if not isinstance(recipe, DockerfileRecipe):
        return recipe
    return replace(recipe, base_images={**recipe.base_images, **bases})


def build_all(
    engine: Engine | None, recipes: Sequence[Recipe], stages: Stages, *, rebuild: bool, install_tools: bool
) -> Iterator[Built]:
    """Build what is missing, or with ``rebuild`` all, and give each as it is done. Raises as a build does."""
    from securebench.cli.images_sandboxes import BuildSandboxes
    from securebench.images.build import Builder
    from securebench.images.derived.compose import COMMIT_LABEL
    from securebench.images.store import ImageStore

    store = ImageStore()
    for recipe in recipes:
        with stages(recipe.name) as report, BuildSandboxes(report) as sandboxes:
            builder = Builder(store, engine, report, sandboxes.check, sandboxes.steps, install_tools)
            state = builder.state(recipe)
            started = time.monotonic()
            is_there = bool(state.id) and not rebuild
            state = state if is_there else builder.build(recipe)
            seconds = None if is_there else time.monotonic() - started
        commit = store.labels(recipe.reference).get(COMMIT_LABEL, "") if state.place == "store" else ""
        yield Built(state=state, seconds=seconds, commit=commit)
