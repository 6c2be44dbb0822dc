"""Recipes: how images are made. A directory a recipe, with ``recipe.yaml``; where it lies says whose it is.

Ours lie in ``images/`` at the root of the repository, and in the installed package; those of a pack in the pack.
"""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from securebench.errors import ConfigError
from securebench.images.build.recipe_digest import base_references
from securebench.images.build.recipe_file import read_recipe

if TYPE_CHECKING:
    from collections.abc import Iterable

    from securebench.images.build.recipe_kinds import Recipe

RECIPE_FILE = "recipe.yaml"
_PACKAGE = Path(__file__).resolve().parents[2]
_PLACES = (_PACKAGE / "_recipes", _PACKAGE.parent.parent / "images")
"""In a wheel, and in a checkout."""


def load_recipe(directory: Path) -> Recipe:
    """Read one recipe. Raises :class:`ConfigError` (``recipe-invalid``) with all that is wrong with it."""
    return read_recipe(directory.absolute() / RECIPE_FILE)


def all_recipes(root: Path | None = None) -> tuple[Recipe, ...]:
    """Return every recipe below ``root`` (by default, ours), by name. Raises :class:`ConfigError`."""
    directory = root or next(place for place in _PLACES if place.is_dir())
    return tuple(load_recipe(path.parent) for path in sorted(directory.glob(f"*/{RECIPE_FILE}")))


def find_recipes(name: str, root: Path | None = None) -> tuple[Recipe, ...]:
    """Return what a user names: a recipe of ours, a directory that is a recipe, or a directory of recipes.

    Raises :class:`ConfigError` (``recipe-unknown``, ``recipe-invalid``).
    """
    directory = Path(name)
    if (directory / RECIPE_FILE).is_file():
        return (load_recipe(directory),)
    found = all_recipes(directory) if directory.is_dir() else ()
    return found or (find_recipe(name, root),)


def find_recipe(name: str, root: Path | None = None) -> Recipe:
    """Return the recipe of that name, or of that image reference, with or without its ``securebench/``.

    Raises :class:`ConfigError` (``recipe-unknown``).
    """
    recipes = all_recipes(root)
    known = {key: recipe for recipe in recipes for key in (recipe.name, recipe.reference, recipe.short_reference)}
    if name in known:
        return known[name]
    close = get_close_matches(name, known, n=1)
    names = ", ".join(recipe.name for recipe in recipes)
    raise ConfigError(
        f"unknown image recipe {name!r}",
        code="recipe-unknown",
        hint=f"did you mean {close[0]!r}?" if close else f"there are: {names}; or name a directory with recipes",
    )


def in_building_order(recipes: Iterable[Recipe]) -> tuple[Recipe, ...]:
    """Return them with each after the one that makes its base."""
    waiting = list({recipe.reference: recipe for recipe in recipes}.values())
    ordered: list[Recipe] = []
    while waiting:
        missing = {recipe.reference for recipe in waiting}
        ready = [recipe for recipe in waiting if missing.isdisjoint(base_references(recipe))]
        ordered += ready or waiting  # a circle: the first build says what is missing
        waiting = [recipe for recipe in waiting if recipe not in ready] if ready else []
    return tuple(ordered)
