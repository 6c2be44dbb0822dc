"""Recipes: what they must say, and how they are found."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from securebench.errors import ConfigError
from securebench.images.recipe_kinds import SystemRecipe
from securebench.images.recipes import all_recipes, find_recipe, load_recipe
from securebench.images.reference import check_reference
from securebench.tasks import DEFAULT_IMAGE

if TYPE_CHECKING:
    from pathlib import Path

GOOD = """\
reference: securebench/tool:1
summary: A tool.
base: debian:bookworm-slim
debian:
  suite: bookworm
  packages: [bash]
  environment: {PATH: /usr/bin}
  command: [bash]
checks:
  - [bash, --version]
"""


def _recipe(root: Path, text: str = GOOD, name: str = "tool") -> Path:
    directory = root / name
    directory.mkdir()
    (directory / "recipe.yaml").write_text(text)
    return directory


def test_a_recipe_is_read_as_it_is_written(tmp_path: Path) -> None:
    """Every field of the file is in the recipe, and its name is its directory's."""
    recipe = load_recipe(_recipe(tmp_path))
    assert isinstance(recipe, SystemRecipe)
    assert (recipe.name, recipe.reference, recipe.summary) == ("tool", "securebench/tool:1", "A tool.")
    assert (recipe.base, recipe.suite, recipe.packages) == ("debian:bookworm-slim", "bookworm", ("bash",))
    assert (recipe.environment, recipe.command) == ({"PATH": "/usr/bin"}, ("bash",))
    assert recipe.checks == (("bash", "--version"),)
    assert recipe.dockerfile == tmp_path / "tool" / "Dockerfile"


@pytest.mark.parametrize(
    ("old", "new", "pointer"),
    [
        ("summary: A tool.\n", "", "/summary"),
        ("summary: A tool.", "summary: ''", "/summary"),
        ("securebench/tool:1", "securebench/tool", "/reference"),
        ("securebench/tool:1", "'--privileged image:1'", "/reference"),
        ("debian:bookworm-slim", "debian", "/base"),
        ("suite: bookworm", "suite: --hook=x", "/debian/suite"),
        ("[bash]\n  environment", "['--include=x']\n  environment", "/debian/packages/0"),
        ("[bash]\n  environment", "['bash,evil']\n  environment", "/debian/packages/0"),
        ("checks:", "checkz: []\nchecks:", "/checkz"),
        ("  command: [bash]", "  command: bash", "/debian/command"),
    ],
)
def test_a_wrong_field_is_refused_where_it_stands(tmp_path: Path, old: str, new: str, pointer: str) -> None:
    """K15: a recipe's names cannot be options or carry more than one name; what is wrong is named with its place."""
    assert old in GOOD
    directory = _recipe(tmp_path, GOOD.replace(old, new))
    with pytest.raises(ConfigError) as caught:
        load_recipe(directory)
    assert caught.value.code == "recipe-invalid"
    assert pointer in [problem.location.pointer for problem in caught.value.problems if problem.location]


@pytest.mark.parametrize("text", ["", "- a list", "reference: [", "a: 1\na: 2"])
def test_a_file_that_is_no_recipe_at_all_is_refused(tmp_path: Path, text: str) -> None:
    """Empty files, other shapes, broken YAML and duplicate keys are configuration errors."""
    directory = _recipe(tmp_path, text)
    with pytest.raises(ConfigError, match=re.escape(str(directory / "recipe.yaml"))):
        load_recipe(directory)


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    """One error names every wrong field."""
    directory = _recipe(tmp_path, GOOD.replace("A tool.", "''").replace("bookworm\n", "Bookworm\n"))
    with pytest.raises(ConfigError) as caught:
        load_recipe(directory)
    assert len(caught.value.problems) == 2


@pytest.mark.parametrize("name", ["tool", "securebench/tool:1", "tool:1"])
def test_a_recipe_is_found_by_its_name_and_by_its_reference(tmp_path: Path, name: str) -> None:
    """NAME may be the directory's name, the reference, or the reference without our prefix."""
    _recipe(tmp_path)
    assert find_recipe(name, tmp_path).name == "tool"


def test_an_unknown_name_says_what_was_perhaps_meant(tmp_path: Path) -> None:
    """A near miss is answered with 'did you mean', anything else with the names that there are."""
    _recipe(tmp_path)
    with pytest.raises(ConfigError, match=r"did you mean 'tool'") as caught:
        find_recipe("tol", tmp_path)
    assert caught.value.code == "recipe-unknown"
    with pytest.raises(ConfigError, match="there are: tool"):
        find_recipe("xyzzy", tmp_path)


def test_recipes_are_listed_by_name(tmp_path: Path) -> None:
    """Directories without a recipe are not recipes."""
    _recipe(tmp_path, name="b")
    _recipe(tmp_path, name="a")
    (tmp_path / "notes").mkdir()
    assert [recipe.name for recipe in all_recipes(tmp_path)] == ["a", "b"]


def test_our_own_recipes_are_valid_and_one_makes_the_default_image() -> None:
    """Every recipe that we ship loads, has a Dockerfile, checks and a usable reference; one makes the default image."""
    recipes = all_recipes()
    assert DEFAULT_IMAGE in {recipe.reference for recipe in recipes}
    for recipe in recipes:
        check_reference(recipe.reference)
        assert isinstance(recipe, SystemRecipe)
        assert recipe.dockerfile.read_text().startswith("ARG BASE\nFROM ${BASE}\n")
        assert recipe.checks


def test_the_default_image_has_what_a_task_may_rely_on() -> None:
    """The base image's recipe checks for Python 3.11, bash, coreutils and git before the image gets its name."""
    programs = [command[0] for command in find_recipe(DEFAULT_IMAGE).checks]
    assert programs == ["python3", "bash", "sort", "git"]
