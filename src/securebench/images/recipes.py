"""Recipes: how each image of this project is made. A directory a recipe, with ``recipe.yaml`` and a ``Dockerfile``.

A recipe has two ways to the same image: on top of an official image where a registry answers, and from Debian's
packages where none does. The recipes lie in ``images/`` at the root of the repository, and in the installed package.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from securebench.errors import ConfigError, Problem, SourceLocation
from securebench.images.reference import LOCAL_PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

RECIPE_FILE = "recipe.yaml"
_PACKAGE = Path(__file__).resolve().parent.parent
_PLACES = (_PACKAGE / "_recipes", _PACKAGE.parent.parent / "images")
"""In a wheel, and in a checkout."""

Text = Annotated[str, StringConstraints(min_length=1)]
Reference = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+([._/-][a-z0-9]+)*:[A-Za-z0-9_][A-Za-z0-9_.-]*$")]
Package = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9+.-]+$")]
Suite = Annotated[str, StringConstraints(pattern=r"^[a-z]+$")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How one image is made.

    ``base`` and the Dockerfile are the way through a registry; ``suite``, ``packages``, ``environment`` and ``command``
    the way without. ``checks`` are argvs that must succeed inside before the image gets its name.
    """

    name: str
    directory: Path
    reference: str
    summary: str
    base: str
    suite: str
    packages: tuple[str, ...]
    environment: Mapping[str, str]
    command: tuple[str, ...]
    checks: tuple[tuple[str, ...], ...]

    @property
    def short_reference(self) -> str:
        """The reference without our own prefix: ``python:3.11``."""
        return self.reference.removeprefix(LOCAL_PREFIX)

    @property
    def dockerfile(self) -> Path:
        """What is done on top of ``base``, which it takes as the build argument ``BASE``."""
        return self.directory / "Dockerfile"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Debian(_Strict):
    suite: Suite
    packages: list[Package]
    environment: dict[str, str]
    command: list[str]


class _RecipeFile(_Strict):
    reference: Reference
    summary: Text
    base: Reference
    debian: _Debian
    checks: list[list[str]]


def load_recipe(directory: Path) -> Recipe:
    """Read one recipe. Raises :class:`ConfigError` (``recipe-invalid``) with all that is wrong with it."""
    wire = _read(directory / RECIPE_FILE)
    return Recipe(
        name=directory.name,
        directory=directory,
        reference=wire.reference,
        summary=wire.summary,
        base=wire.base,
        suite=wire.debian.suite,
        packages=tuple(wire.debian.packages),
        environment=wire.debian.environment,
        command=tuple(wire.debian.command),
        checks=tuple(map(tuple, wire.checks)),
    )


def all_recipes(root: Path | None = None) -> tuple[Recipe, ...]:
    """Return every recipe below ``root`` (by default, ours), by name. Raises :class:`ConfigError`."""
    directory = root or next(place for place in _PLACES if place.is_dir())
    return tuple(load_recipe(path.parent) for path in sorted(directory.glob(f"*/{RECIPE_FILE}")))


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
        f"there is no image recipe {name!r}",
        code="recipe-unknown",
        hint=f"did you mean {close[0]!r}?" if close else f"there are: {names}",
    )


def _read(path: Path) -> _RecipeFile:
    try:
        return _RecipeFile.model_validate(YAML(typ="safe").load(path))
    except ValidationError as error:
        raise ConfigError(problems=[_problem(path, item["loc"], item["msg"]) for item in error.errors()]) from None
    except (YAMLError, OSError) as error:
        raise ConfigError(problems=[_problem(path, (), str(error))]) from None


def _problem(path: Path, keys: tuple[int | str, ...], message: str) -> Problem:
    pointer = "".join(f"/{key}" for key in keys)
    return Problem("recipe-invalid", message, SourceLocation(str(path), pointer=pointer))
