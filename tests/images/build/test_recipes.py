"""Recipes of images: what is valid in them, and how they are found."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from securebench.errors import ConfigError
from securebench.images.build.recipe_kinds import DerivedRecipe, DockerfileRecipe, GitSource, Recipe, SystemRecipe
from securebench.images.build.recipes import all_recipes, find_recipe, find_recipes, in_building_order, load_recipe
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
    """Each field of the file is read, and the recipe has the name of its directory."""
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
    """K15: a wrong field is refused, and the error locates it. A name may be neither an option nor several names."""
    assert old in GOOD
    directory = _recipe(tmp_path, GOOD.replace(old, new))
    with pytest.raises(ConfigError) as caught:
        load_recipe(directory)
    assert pointer in [problem.location.pointer for problem in caught.value.problems if problem.location]


@pytest.mark.parametrize("text", ["", "- a list", "reference: [", "a: 1\na: 2"])
def test_a_file_that_is_no_recipe_at_all_is_refused(tmp_path: Path, text: str) -> None:
    """An empty file, a list, invalid YAML and duplicate keys are configuration errors."""
    directory = _recipe(tmp_path, text)
    with pytest.raises(ConfigError, match=re.escape(str(directory / "recipe.yaml"))):
        load_recipe(directory)


WRONG = """\
reference: tool
sumary: A task.
base: Debian
workdir: /tmp/x
files: {../out: /data}
requirements: [pytest>=8]
source: {git: {commit: main, url: https://example.org/x}}
install: [make install]
"""


def test_all_problems_of_a_recipe_are_reported_with_line_and_column(tmp_path: Path) -> None:
    """Problems of all kinds are reported at once, each with its line, column, code and a plain message."""
    directory = _recipe(tmp_path, WRONG)
    with pytest.raises(ConfigError) as caught:
        load_recipe(directory)
    found = [(problem.location, problem.code, problem.message) for problem in caught.value.problems]
    assert {place.file for place, _, _ in found if place} == {str(directory / "recipe.yaml")}
    assert [(place and (place.line, place.column), code, message) for place, code, message in found] == [
        ((1, 12), "field-value", "reference is not the name of an image with a tag, such as 'securebench/tool:1'"),
        ((1, 1), "field-missing", "summary is missing"),
        ((2, 1), "field-unknown", "unknown key 'sumary'"),
        ((3, 7), "image-reference-invalid", "base is not an image reference"),
        (
            (4, 10),
            "field-value",
            "workdir must not be at or below /proc, /sys, /dev, /tmp or /run: images do not keep them",
        ),
        ((5, 9), "path-unsafe", "the key '../out' must be a relative path inside the recipe's directory, without '..'"),
        ((6, 16), "field-value", "requirements[0] is not an exact requirement, such as 'pytest==8.3.3'"),
        ((7, 24), "field-value", "source.git.commit is not the full id of a commit: 40 lowercase hexadecimal digits"),
        ((8, 11), "field-type", "install[0] must be a list, but is the string 'make install'"),
    ]


def test_a_misspelled_kind_is_recognised(tmp_path: Path) -> None:
    """The error for the key 'dockerfil' suggests 'dockerfile'. It does not ask for keys of another kind of recipe."""
    directory = _recipe(tmp_path, DOCKERFILE.replace("dockerfile:", "dockerfil:"))
    with pytest.raises(ConfigError) as caught:
        load_recipe(directory)
    assert [(problem.code, problem.hint) for problem in caught.value.problems] == [
        ("field-missing", ""),
        ("field-unknown", "did you mean 'dockerfile'?"),
    ]


@pytest.mark.parametrize(
    ("text", "code", "line", "column"),
    [
        ("reference: &a securebench/tool:1\nsummary: *a\nbase: x:1\n", "yaml-alias", 1, 12),
        ("reference: a:1\nsummary: !!str x\n", "yaml-tag", 2, 10),
        ("reference: a:1\nreference: b:1\n", "key-duplicate", 2, 1),
        ("reference: a:1\n---\nreference: b:1\n", "yaml-documents", 2, 1),
        ("reference: [", "yaml-syntax", 1, 13),
        ("reference: a:1\nsummary: x\nbase: b:1\nworkdir: null\n", "field-type", 4, 10),
    ],
)
def test_a_recipe_is_read_strictly(tmp_path: Path, text: str, code: str, line: int, column: int) -> None:
    """A pack's recipe is untrusted: invalid YAML, and YAML that two parsers could read differently, is refused."""
    directory = _recipe(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_recipe(directory)
    first = caught.value.problems[0]
    assert first.location
    assert (first.code, first.location.line, first.location.column) == (code, line, column)


def test_a_recipe_is_a_regular_file_of_limited_size(tmp_path: Path) -> None:
    """A recipe that is a symbolic link or too large is refused, because a pack's recipe is untrusted."""
    linked, large = tmp_path / "linked", _recipe(tmp_path, f"# {'x' * 65_536}\n{GOOD}", "large")
    linked.mkdir()
    (linked / "recipe.yaml").symlink_to(_recipe(tmp_path) / "recipe.yaml")
    for directory, code in ((linked, "file-not-regular"), (large, "file-too-large")):
        with pytest.raises(ConfigError) as caught:
            load_recipe(directory)
        assert caught.value.code == code


@pytest.mark.parametrize("name", ["tool", "securebench/tool:1", "tool:1"])
def test_a_recipe_is_found_by_its_name_and_by_its_reference(tmp_path: Path, name: str) -> None:
    """A recipe is found by its directory's name, and by its reference with or without ``securebench/``."""
    _recipe(tmp_path)
    assert find_recipe(name, tmp_path).name == "tool"


def test_an_unknown_name_says_what_was_perhaps_meant(tmp_path: Path) -> None:
    """The error for an unknown name suggests a similar name, or lists all names if none is similar."""
    _recipe(tmp_path)
    with pytest.raises(ConfigError, match=r"did you mean 'tool'") as caught:
        find_recipe("tol", tmp_path)
    assert caught.value.code == "recipe-unknown"
    with pytest.raises(ConfigError, match="or one of these names: tool"):
        find_recipe("xyzzy", tmp_path)


def test_recipes_are_listed_by_name(tmp_path: Path) -> None:
    """Recipes are sorted by name, and directories without a recipe are ignored."""
    _recipe(tmp_path, name="b")
    _recipe(tmp_path, name="a")
    (tmp_path / "notes").mkdir()
    assert [recipe.name for recipe in all_recipes(tmp_path)] == ["a", "b"]


def test_our_own_recipes_are_valid_and_one_makes_the_default_image() -> None:
    """Each of SecureBench's recipes has a Dockerfile, checks and a valid reference; one is for the default image."""
    recipes = all_recipes()
    assert DEFAULT_IMAGE in {recipe.reference for recipe in recipes}
    for recipe in recipes:
        check_reference(recipe.reference)
        assert isinstance(recipe, SystemRecipe)
        assert recipe.dockerfile.read_text().startswith("ARG BASE\nFROM ${BASE}\n")
        assert recipe.checks


def test_the_default_image_has_what_a_task_may_rely_on() -> None:
    """The checks of the default image's recipe run Python, bash, a program of coreutils, and git."""
    programs = [command[0] for command in find_recipe(DEFAULT_IMAGE).checks]
    assert programs == ["python3", "bash", "sort", "git"]


DERIVED = """\
reference: securebench/pack/task:1
summary: A task.
base: securebench/python:3.11
workdir: /testbed
environment: {NAME: value}
files: {files: /data}
python: "3.12"
requirements: [pytest==8.3.3, a.b-c==1.0+local]
source:
  git: {path: ../clone, commit: 0123abcdef0123abcdef0123abcdef0123abcdef}
install:
  - [make, install]
run:
  - [sh, -c, "echo x"]
checks:
  - ["true"]
"""

DOCKERFILE = """\
reference: securebench/pack/docker:1
summary: Another.
dockerfile: environment/Dockerfile
context: environment
base_images: {"python:3.13-slim": "securebench/python:3.11"}
build_args: {A: b}
network: none
"""


def test_there_are_three_kinds_of_recipe() -> None:
    """``Recipe`` has exactly three subclasses; code that distinguishes them must handle these three."""
    kinds = {SystemRecipe, DerivedRecipe, DockerfileRecipe}
    assert {kind.__name__ for kind in Recipe.__subclasses__()} == {kind.__name__ for kind in kinds}


def test_a_derived_recipe_is_read_as_it_is_written(tmp_path: Path) -> None:
    """Each field of a derived recipe is read, and a clone's path is relative to the recipe's directory."""
    recipe = load_recipe(_recipe(tmp_path, DERIVED))
    assert isinstance(recipe, DerivedRecipe)
    assert (recipe.base, recipe.workdir, recipe.python) == ("securebench/python:3.11", "/testbed", "3.12")
    assert (recipe.environment, recipe.files) == ({"NAME": "value"}, {"files": "/data"})
    assert recipe.requirements == ("pytest==8.3.3", "a.b-c==1.0+local")
    assert recipe.source == GitSource(commit="0123abcdef" * 4, path=tmp_path / "tool" / "../clone")
    assert (recipe.install, recipe.run, recipe.checks) == (
        (("make", "install"),),
        (("sh", "-c", "echo x"),),
        (("true",),),
    )


def test_what_a_derived_recipe_does_not_say_is_nothing(tmp_path: Path) -> None:
    """A derived recipe needs only a reference, a summary and a base; its other fields are then empty."""
    recipe = load_recipe(_recipe(tmp_path, "reference: securebench/a/b:1\nsummary: x\nbase: debian@sha256:" + "a" * 64))
    assert isinstance(recipe, DerivedRecipe)
    assert (recipe.workdir, recipe.files, recipe.source, recipe.run, recipe.checks) == ("", {}, None, (), ())


def test_a_dockerfile_recipe_is_read_as_it_is_written(tmp_path: Path) -> None:
    """A Dockerfile recipe's paths are relative to its directory, which is also the default build context."""
    recipe = load_recipe(_recipe(tmp_path, DOCKERFILE))
    assert isinstance(recipe, DockerfileRecipe)
    assert recipe.dockerfile == tmp_path / "tool" / "environment" / "Dockerfile"
    assert recipe.context == tmp_path / "tool" / "environment"
    assert (recipe.base_images, recipe.build_args) == ({"python:3.13-slim": "securebench/python:3.11"}, {"A": "b"})
    assert recipe.network == "none"
    plain = load_recipe(_recipe(tmp_path, DOCKERFILE.replace("context: environment\n", ""), "plain"))
    assert isinstance(plain, DockerfileRecipe)
    assert plain.context == tmp_path / "plain"


@pytest.mark.parametrize(
    ("text", "old", "new", "pointer"),
    [
        (DERIVED, "base: securebench/python:3.11", "base: --privileged x", "/base"),
        (DERIVED, "base: securebench/python:3.11", "base: $(id)", "/base"),
        (DERIVED, "workdir: /testbed", "workdir: testbed", "/workdir"),
        (DERIVED, "workdir: /testbed", "workdir: /a/../b", "/workdir"),
        (DERIVED, "workdir: /testbed", "workdir: /tmp/x", "/workdir"),
        (DERIVED, "workdir: /testbed", "workdir: /proc", "/workdir"),
        (DERIVED, "workdir: /testbed", "workdir: /", "/workdir"),
        (DERIVED, "workdir: /testbed\n", "", "/source"),
        (DERIVED, "files: {files: /data}", "files: {../files: /data}", "/files/..~1files"),
        (DERIVED, "files: {files: /data}", "files: {/etc: /data}", "/files/~1etc"),
        (DERIVED, "files: {files: /data}", "files: {files: /run/x}", "/files/files"),
        (DERIVED, "environment: {NAME: value}", "environment: {'A=B': value}", "/environment/A=B"),
        (DERIVED, 'python: "3.12"', 'python: "3.12; x"', "/python"),
        (DERIVED, "pytest==8.3.3", "pytest>=8", "/requirements/0"),
        (DERIVED, "pytest==8.3.3", "--index-url=x==1", "/requirements/0"),
        (DERIVED, "pytest==8.3.3", "'x @ https://example.org/x.whl'", "/requirements/0"),
        (DERIVED, "git: {path: ../clone,", "git: {path: ../clone, url: 'https://example.org/x',", "/source/git"),
        (DERIVED, "git: {path: ../clone,", "git: {", "/source/git"),
        (DERIVED, "git: {path: ../clone,", "git: {url: 'ext::sh -c id',", "/source/git/url"),
        (DERIVED, "git: {path: ../clone,", "git: {url: 'https://user:x@example.org/x',", "/source/git/url"),
        (DERIVED, "0123abcdef0123abcdef0123abcdef0123abcdef", "main", "/source/git/commit"),
        (DERIVED, "- [make, install]", "- []", "/install/0"),
        (DERIVED, "- [make, install]", "- make install", "/install/0"),
        (DERIVED, "summary: A task.", "summary: A task.\nsumary: x", "/sumary"),
        (DOCKERFILE, "dockerfile: environment/Dockerfile", "dockerfile: ../Dockerfile", "/dockerfile"),
        (DOCKERFILE, "context: environment", "context: /", "/context"),
        (DOCKERFILE, "network: none", "network: container:x", "/network"),
        (DOCKERFILE, '{"python:3.13-slim"', '{"--x"', "/base_images/--x"),
    ],
)
def test_what_a_recipe_of_a_pack_may_not_say_is_refused(
    tmp_path: Path, text: str, old: str, new: str, pointer: str
) -> None:
    """K15: options, unsafe paths, inexact versions and addresses without https are refused; the error locates them."""
    assert old in text
    directory = _recipe(tmp_path, text.replace(old, new))
    with pytest.raises(ConfigError) as caught:
        load_recipe(directory)
    places = [problem.location for problem in caught.value.problems if problem.location and problem.location.column]
    assert pointer in [place.pointer for place in places]


def test_a_user_names_a_recipe_a_directory_of_one_or_a_directory_of_recipes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user may pass a recipe's directory, a directory of recipes, or the name of one of SecureBench's recipes."""
    _recipe(tmp_path, DERIVED, "one")
    _recipe(tmp_path, DOCKERFILE, "two")
    assert [recipe.name for recipe in find_recipes(str(tmp_path / "one"))] == ["one"]
    assert [recipe.name for recipe in find_recipes(str(tmp_path))] == ["one", "two"]
    assert [recipe.name for recipe in find_recipes("python-3.11")] == ["python-3.11"]
    monkeypatch.chdir(tmp_path)
    assert [recipe.directory for recipe in find_recipes("one")] == [tmp_path / "one"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="unknown image recipe"):
        find_recipes("empty")


def test_what_makes_a_base_is_built_before_what_is_on_top_of_it(tmp_path: Path) -> None:
    """Bases are built first, whatever the recipes' names; a cycle of one or two recipes causes no endless loop."""
    third = load_recipe(_recipe(tmp_path, DERIVED.replace("securebench/python:3.11", "securebench/pack/docker:1"), "a"))
    second = load_recipe(_recipe(tmp_path, DOCKERFILE.replace("securebench/python:3.11", "securebench/tool:1"), "b"))
    first = load_recipe(_recipe(tmp_path, GOOD, "c"))
    assert in_building_order([third, second, first]) == (first, second, third)
    circle = load_recipe(_recipe(tmp_path, DERIVED.replace("securebench/python:3.11", "securebench/pack/task:1"), "d"))
    assert in_building_order([circle, circle]) == (circle,)
    fourth = load_recipe(
        _recipe(tmp_path, DOCKERFILE.replace("securebench/python:3.11", "securebench/pack/task:1"), "e")
    )
    assert in_building_order([third, fourth, first]) == (first, third, fourth)
