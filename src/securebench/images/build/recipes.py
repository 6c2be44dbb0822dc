"""Recipes, which describe how images are built. A recipe is a directory with ``recipe.yaml``.

SecureBench's own recipes are in ``images/`` of the repository, and part of the installed package. A pack contains its
own recipes.
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
"""Where SecureBench's recipes are: in an installed wheel, or in a checkout."""


def load_recipe(directory: Path) -> Recipe:
    """Read one recipe. Raises :class:`ConfigError` with all problems of the recipe, each with its own code."""
    return read_recipe(directory.absolute() / RECIPE_FILE)


def all_recipes(root: Path | None = None) -> tuple[Recipe, ...]:
    """Return the recipes in ``root`` (default: those of SecureBench), sorted by name. Raises :class:`ConfigError`."""
    directory = root or next(place for place in _PLACES if place.is_dir())
    return tuple(load_recipe(path.parent) for path in sorted(directory.glob(f"*/{RECIPE_FILE}")))


def find_recipes(name: str, root: Path | None = None) -> tuple[Recipe, ...]:
    """Return the recipe or recipes that ``name`` refers to.

    ``name`` is a recipe's directory, a directory of recipes, or a name or image reference for :func:`find_recipe`.
    Raises :class:`ConfigError` (``recipe-unknown``), and the errors of :func:`load_recipe`.
    """
    directory = Path(name)
    if (directory / RECIPE_FILE).is_file():
        return (load_recipe(directory),)
    found = all_recipes(directory) if directory.is_dir() else ()
    return found or (find_recipe(name, root),)


def find_recipe(name: str, root: Path | None = None) -> Recipe:
    """Return the recipe with this name or image reference, with or without ``securebench/``.

    Raises :class:`ConfigError` (``recipe-unknown``), and the errors of :func:`load_recipe`.
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
        hint=f"did you mean {close[0]!r}?"
        if close
        else f"pass a directory with recipes, or one of these names: {names}",
    )


def in_building_order(recipes: Iterable[Recipe]) -> tuple[Recipe, ...]:
    """Return the recipes in building order: each after the recipes of its bases."""
    waiting = list({recipe.reference: recipe for recipe in recipes}.values())
    ordered: list[Recipe] = []
    while waiting:
        missing = {recipe.reference for recipe in waiting}
        ready = [recipe for recipe in waiting if missing.isdisjoint(base_references(recipe))]
        ordered += ready or waiting  # if none is ready, there is a cycle: the first build reports its missing base
        waiting = [recipe for recipe in waiting if recipe not in ready] if ready else []
    return tuple(ordered)
