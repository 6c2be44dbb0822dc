"""``securebench images``: its output and its effects. Most tests hide the Docker Engine of the machine."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner
from rich.console import Console

from fake_registry import fake_registry
from git_repositories import commit, repository
from image_archives import ARCHITECTURE, docker_save, file, layer
from pseudo_terminals import shown_on
from securebench.cli.images_command import command
from securebench.cli.images_sandboxes import BuildSandboxes
from securebench.cli.views.images import Row, human_size, images_table, parse_size
from securebench.errors import EngineError
from securebench.images.build.build import Builder, ImageState
from securebench.images.build.recipes import all_recipes
from securebench.images.store.image_store import ImageStore
from securebench.images.store.places import DIRECTORY_VARIABLE
from securebench.sandboxes import select
from securebench.testing.scripted_sandbox import ScriptedDriver

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

    from securebench.engine.client import Engine
    from securebench.images.build.recipe_kinds import DockerfileRecipe, SystemRecipe
    from securebench.images.model import ResolvedImage

BASE = "securebench/python:3.11"
ROOT = layer(file("etc/os", b"one\n"))
SEND = "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('192.0.2.1', 9))"
"""A Python program that fails if there is no route out. It sends nothing."""


@pytest.fixture
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ImageStore:
    """Return an empty store, and make Docker Engine unavailable."""
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path / "images"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no-engine.sock")
    return ImageStore()


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """Replace ``Builder.build`` with a fake. Return its calls: the recipe, and whether tools may be installed."""
    calls: list[tuple[str, bool]] = []

    def build(self: Builder, recipe: SystemRecipe) -> ImageState:
        calls.append((recipe.name, self.install_tools))
        self.report("extracting [archives]")
        return ImageState(recipe, "sha256:" + "ab" * 32, 1_000_000, "store")

    monkeypatch.setattr(Builder, "build", build)
    return calls


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """Return an archive of one image that has two names: ``BASE`` and ``tool:1``."""
    path = tmp_path / "saved.tar"
    path.write_bytes(docker_save([ROOT], [BASE, "tool:1"]))
    return path


def images(*arguments: object) -> Result:
    """Run ``securebench images`` with these arguments."""
    return CliRunner().invoke(command, [str(argument) for argument in arguments], catch_exceptions=False)


def test_what_is_missing_is_built_with_its_stages_shown(own_store: ImageStore, built: list[tuple[str, bool]]) -> None:
    """Without a name, every recipe is built. Stages are printed as plain lines on stderr, results on stdout."""
    done = images("build")
    assert done.exit_code == 0, done.output
    assert built == [(recipe.name, False) for recipe in all_recipes()]
    assert "python-3.11: extracting [archives]\n" in done.stderr
    assert re.search(rf"^python-3\.11: built {BASE} \(sha256:abababababab\) in 0 s$", done.stdout, re.MULTILINE)


def test_what_is_there_is_not_built_again(own_store: ImageStore, built: list[tuple[str, bool]], saved: Path) -> None:
    """For an existing image, ``build`` only prints the image's id; with ``--force`` it builds the image again."""
    images("import", saved)
    done = images("build", "python-3.11")
    assert re.fullmatch(rf"python-3\.11: {BASE} \(sha256:[0-9a-f]{{12}}\) already exists\n", done.stdout)
    assert built == []
    assert images("build", BASE, "--force", "--install-tools").exit_code == 0
    assert built == [("python-3.11", True)]


@pytest.mark.engine
def test_what_an_engine_has_is_not_built(
    engine: Engine,
    base_image: ResolvedImage,
    built: list[tuple[str, bool]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An image that only Docker Engine has is not built again, and the list shows that it is in the engine."""
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path / "images"))
    name, _, tag = BASE.partition(":")
    engine.client.tag(base_image.id, name, tag)
    assert "already exists" in images("build", "python-3.11").stdout
    assert built == []
    (row,) = json.loads(images("list", "--json").stdout)
    assert (row["built"], row["id"], row["place"], row["source"]) == (True, base_image.id, "engine", "engine")


def _pack(directory: Path) -> Path:
    """Write two recipes, and return ``directory``. ``a-second`` is based on ``z-first``, but its name sorts first."""
    for name, base in (("z-first", "tool:1"), ("a-second", "securebench/pack/z-first:1")):
        (directory / name / "files").mkdir(parents=True)
        (directory / name / "files" / name).write_text(name)
        text = f"reference: securebench/pack/{name}:1\nsummary: x\nbase: {base}\nfiles: {{files: /app}}\n"
        (directory / name / "recipe.yaml").write_text(text)
    return directory


def test_the_recipes_of_a_pack_are_built_by_the_name_of_their_directory(
    own_store: ImageStore, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All recipes of a directory are built, each after its base. Without ``--rebuild``, existing images are kept."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    images("import", saved)
    recipes = _pack(tmp_path / "images-of-a-pack")
    first = images("build", recipes)
    lines = first.stdout.splitlines()
    assert [line.split(" (")[0] for line in lines] == [
        "z-first: built securebench/pack/z-first:1",
        "a-second: built securebench/pack/a-second:1",
        "2 built, 0 already existed, 0 failed",
    ]
    found = own_store.find("securebench/pack/a-second:1")
    assert found is not None
    with own_store.lease(found.id) as tree:
        assert {path.name for path in (tree.root / "app").iterdir()} == {"z-first", "a-second"}
    again = images("build", recipes).stdout.splitlines()
    assert [line.split()[-2:] for line in again[:-1]] == [["already", "exists"]] * 2
    assert "built" in images("build", "--rebuild", recipes / "a-second").stdout


def test_a_changed_recipe_or_base_is_built_again(
    own_store: ImageStore, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image is built again only if its recipe (except the summary), files or base changed. The reason is printed."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    images("import", saved)
    recipes = _pack(tmp_path / "images-of-a-pack")
    assert images("build", recipes).stdout.endswith("2 built, 0 already existed, 0 failed\n")
    assert images("build", recipes).stdout.endswith("0 built, 2 already existed, 0 failed\n")
    (recipes / "a-second" / "files" / "more").write_text("more")
    output = images("build", recipes).stdout
    assert re.search(r"^z-first: .* already exists$", output, re.MULTILINE)
    assert re.search(r"^a-second: built .* \(its recipe has changed\)$", output, re.MULTILINE)
    first = recipes / "z-first" / "recipe.yaml"
    first.write_text(first.read_text() + "environment: {A: b}\n")
    output = images("build", recipes).stdout
    assert re.search(r"^z-first: built .* \(its recipe has changed\)$", output, re.MULTILINE)
    assert re.search(r"^a-second: built .* \(its base securebench/pack/z-first:1 has changed\)$", output, re.MULTILINE)
    first.write_text(first.read_text().replace("summary: x", "summary: other words"))
    assert "2 already existed" in images("build", recipes).stdout
    own_store.remove("tool:1")
    assert "2 already existed" in images("build", recipes).stdout


def test_a_recipe_that_fails_does_not_stop_the_others(
    own_store: ImageStore, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a recipe fails, only the recipes based on it are skipped. The failures are counted, and the exit code is 1."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    images("import", saved)
    recipes = _pack(tmp_path / "images-of-a-pack")
    assert images("build", recipes).exit_code == 0
    (recipes / "m-good").mkdir()
    (recipes / "m-good" / "recipe.yaml").write_text("reference: securebench/pack/m:1\nsummary: x\nbase: tool:1\n")
    recipe = recipes / "z-first" / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("{files: /app}", "{nowhere: /app}"))
    done = images("build", recipes)
    assert done.exit_code == 1
    assert re.search(r"^m-good: built ", done.stdout, re.MULTILINE)
    assert re.search(r"^z-first: NOT built: .*nowhere.* \[recipe-invalid\]$", done.stdout, re.MULTILINE)
    assert "a-second: NOT built: its base securebench/pack/z-first:1 was not built" in done.stdout
    assert done.stdout.endswith("1 built, 0 already existed, 2 failed\n")
    assert "error: z-first: " in done.stderr
    images_by_name = {image["name"]: image for image in json.loads(images("build", recipes, "--json").stdout)}
    assert images_by_name["z-first"]["error"]["code"] == "recipe-invalid"
    assert (images_by_name["m-good"]["error"], images_by_name["m-good"]["built"]) == (None, False)


def test_what_was_built_is_told_to_programs(
    own_store: ImageStore, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``--json`` prints the id of each image and, if it has a repository, the commit. Importers need both."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    images("import", saved)
    recipes = _pack(tmp_path / "images-of-a-pack")
    clone = repository(tmp_path / "clone")
    (clone / "x").write_text("x")
    wanted = commit(clone)
    (recipes / "m-third").mkdir()
    (recipes / "m-third" / "recipe.yaml").write_text(
        "reference: securebench/pack/m-third:1\nsummary: x\nbase: tool:1\nworkdir: /testbed\n"
        f"source:\n  git: {{path: {clone}, commit: {wanted}}}\n"
    )
    images_by_name = {image["name"]: image for image in json.loads(images("build", "--json", recipes).stdout)}
    third = own_store.find("securebench/pack/m-third:1")
    assert third is not None
    assert images_by_name["m-third"]["id"] == third.id
    assert images_by_name["m-third"]["commit"] == own_store.labels(third.reference)["org.securebench.commit"]
    assert (
        images_by_name["z-first"]["commit"],
        images_by_name["z-first"]["built"],
        images_by_name["z-first"]["place"],
    ) == (None, True, "store")
    again = json.loads(images("build", "--json", recipes).stdout)
    assert {image["built"] for image in again} == {False}


def test_bases_of_dockerfiles_are_given_on_the_command_line(
    own_store: ImageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``--base-image`` adds to the base images of a recipe, and takes precedence over them."""
    calls: list[DockerfileRecipe] = []

    def build(_self: Builder, recipe: DockerfileRecipe) -> ImageState:
        calls.append(recipe)
        return ImageState(recipe, "sha256:" + "ab" * 32, 1, "engine")

    monkeypatch.setattr(Builder, "build", build)
    text = "reference: securebench/pack/d:1\nsummary: x\ndockerfile: Dockerfile\nbase_images: {a:1: b:1, c:1: d:1}\n"
    (tmp_path / "recipe.yaml").write_text(text)
    done = images("build", tmp_path, "--base-image", "a:1=tool:1", "--base-image", "e:1=tool:2")
    assert done.exit_code == 0, done.output
    assert calls[0].base_images == {"a:1": "tool:1", "c:1": "d:1", "e:1": "tool:2"}


@pytest.mark.parametrize("text", ["a:1", "a:1=", "=b", "a:1=--privileged x"])
def test_a_base_that_is_no_pair_of_references_is_a_usage_error(text: str) -> None:
    """K15: a ``--base-image`` that is not a pair of image references is wrong usage."""
    done = images("build", "--base-image", text)
    assert done.exit_code == 2
    assert "--base-image" in done.stderr


def test_an_unknown_name_is_an_error_that_helps() -> None:
    """An unknown recipe name is reported on stderr with a similar name and without a traceback; the exit code is 1."""
    argv = [sys.executable, "-m", "securebench", "images", "build", "python-3.1"]
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert "did you mean 'python-3.11'?" in done.stderr
    assert "recipe-unknown" in done.stderr
    assert "Traceback" not in done.stderr


def test_images_are_imported_listed_and_removed(own_store: ImageStore, saved: Path) -> None:
    """Each command prints what it did. The list has the fields reference, id, size, source, last use and state."""
    done = images("import", saved)
    assert re.fullmatch(rf"{BASE}: imported \(sha256:\w{{12}}\)\ntool:1: imported \(sha256:\w{{12}}\)\n", done.stdout)
    assert "saved.tar: unpacking\n" in done.stderr
    listed = [line.split("\t") for line in images("list").stdout.splitlines()]
    assert [fields[0] for fields in listed] == [BASE, "tool:1"]
    assert listed[1][2:] == ["10 kB", "archive", "just now", "unpacked"]
    assert images("remove", "tool:1", BASE).stdout == f"tool:1: removed\n{BASE}: removed\n"
    assert images("list").stdout.split("\t")[0] == BASE
    assert images("list").stdout.endswith("not built: securebench images build python-3.11\n")


def test_images_that_can_be_removed_are_removed_and_the_others_named(
    own_store: ImageStore, saved: Path, tmp_path: Path
) -> None:
    """Images in use and missing images are reported, the other images are removed, and the exit code is 1."""
    (tmp_path / "root.tar").write_bytes(layer(file("other")))
    images("import", saved)
    images("import", tmp_path / "root.tar", "--name", "root:1")
    used = own_store.find("root:1")
    assert used is not None
    with own_store.lease(used.id):
        done = images("remove", "root:1", "never:1", "tool:1")
    assert (done.exit_code, done.stdout) == (1, "tool:1: removed\n")
    assert "error: the image root:1 is in use" in done.stderr
    assert "error: the store has no image never:1" in done.stderr
    assert {entry.reference for entry in own_store.entries()} == {BASE, "root:1"}


def test_an_image_can_be_given_a_name(own_store: ImageStore, saved: Path, tmp_path: Path) -> None:
    """``--name`` names the image of a root file system, and replaces the names in an archive."""
    (tmp_path / "root.tar").write_bytes(ROOT)
    assert images("import", tmp_path / "root.tar", "--name", "root:1").stdout.startswith("root:1: imported")
    assert images("import", saved, "--name", "own:1").stdout.startswith("own:1: imported")
    assert {entry.reference for entry in own_store.entries()} == {"root:1", "own:1"}


def test_the_list_as_json_has_all_that_is_known(own_store: ImageStore, saved: Path) -> None:
    """The JSON list has each image's id in the store, which records of runs also use. An unbuilt recipe has none."""
    (row,) = json.loads(images("list", "--json").stdout)
    assert (row["name"], row["built"], row["id"], row["size_bytes"]) == ("python-3.11", False, None, None)
    images("import", saved)
    base, tool = json.loads(images("list", "--json").stdout)
    assert (base["name"], base["summary"], tool["name"]) == ("python-3.11", all_recipes()[0].summary, None)
    found = own_store.find("tool:1")
    assert found is not None
    assert (tool["id"], tool["place"], tool["source"], tool["unpacked"], tool["in_use"]) == (
        found.id,
        "store",
        "archive",
        True,
        False,
    )
    with own_store.lease(found.id):
        assert json.loads(images("list", "--json").stdout)[1]["in_use"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", tool["used_at"])


def test_on_a_terminal_the_list_is_a_table(own_store: ImageStore, saved: Path) -> None:
    """On a terminal, the list has headings and borders."""
    images("import", saved)
    master, slave = pty.openpty()
    environment = os.environ | {"COLUMNS": "120", "TERM": "xterm"}
    argv = [sys.executable, "-m", "securebench", "images", "list"]
    subprocess.run(argv, check=True, stdout=slave, env=environment)
    os.close(slave)
    shown = shown_on(master)
    os.close(master)
    assert "reference" in shown
    assert "│" in shown
    assert BASE in shown


def test_an_image_is_pulled_without_an_engine(own_store: ImageStore) -> None:
    """``pull`` works without Docker Engine. It prints its stages on stderr and the result on stdout."""
    with fake_registry() as registry:
        reference = registry.add_image(ROOT, architecture=ARCHITECTURE)
        done = images("pull", reference)
    assert re.fullmatch(rf"{re.escape(reference)}: pulled \(sha256:\w{{12}}\)\n", done.stdout)
    assert f"{reference}: unpacking\n" in done.stderr
    assert [entry.reference for entry in own_store.entries()] == [reference]


def test_prune_keeps_to_its_budget(own_store: ImageStore, saved: Path) -> None:
    """L27: without ``--budget``, named images are kept. With a budget that is too small for them, they are removed.

    The output has the names of removed images and the size of the store.
    """
    images("import", saved)
    done = images("prune")
    assert re.fullmatch(r"freed 0 B; the store now uses \d+ kB\n", done.stdout)
    done = images("prune", "--budget", "1k")
    assert f"{BASE}: removed\n" in done.stdout
    assert "the store now uses 0 B" in done.stdout
    images("import", saved)
    pruned = json.loads(images("prune", "--budget", "0", "--json").stdout)
    assert {entry["reference"] for entry in pruned["removed"]} == {BASE, "tool:1"}
    assert pruned["bytes_before"] > pruned["bytes_after"] == 0


@pytest.mark.parametrize("budget", ["", "G", "-1", "1X", "1e9"])
def test_a_budget_that_is_no_size_is_a_usage_error(own_store: ImageStore, budget: str) -> None:
    """A ``--budget`` that is not a size is wrong usage, and the error shows a valid example."""
    done = images("prune", "--budget", budget)
    assert done.exit_code == 2
    assert "20G" in done.stderr


def test_sizes_are_read_and_written_in_decimal_units() -> None:
    """1 kB is 1000 bytes and 1 KiB is 1024 bytes. Sizes are printed in decimal units."""
    sizes = {"20G": 20 * 10**9, "1.5 MB": 1_500_000, "2KiB": 2048, "7": 7, "1t": 10**12}
    assert {text: parse_size(text) for text in sizes} == sizes
    assert [human_size(size) for size in (0, 999, 1000, 1500, 209_344_000, 10**16)] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "1.5 kB",
        "209 MB",
        "10 PB",
    ]
    with pytest.raises(click.BadParameter):
        parse_size("much")


def test_errors_are_one_message_with_what_to_do(own_store: ImageStore, tmp_path: Path) -> None:
    """Without Docker Engine, an error has a code and a hint, but no traceback, and the exit code is 1."""
    (tmp_path / "text").write_text("no archive" * 100)
    for arguments, code in (
        (("import", str(tmp_path / "text")), "image-malformed"),
        (("remove", "never:1"), "image-unavailable"),
        (("pull", "securebench/python:9"), "image-unavailable"),
    ):
        argv = [sys.executable, "-m", "securebench", "images", *arguments]
        done = subprocess.run(argv, check=False, capture_output=True, text=True)
        assert done.returncode == 1
        assert f"[{code}]" in done.stderr
        assert "hint:" in done.stderr
        assert "Traceback" not in done.stderr


def test_a_check_runs_in_a_sandbox_of_the_image(
    driver: object, base_image: ResolvedImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With every driver, a check runs as ``nobody``, on a read-only root and without a network."""

    class Kept:
        """A proxy for the driver of the test session. It ignores ``close``, because other tests use the driver."""

        def __getattr__(self, name: str) -> object:
            return getattr(driver, name)

        def close(self) -> None:
            """Leave the driver open."""

    monkeypatch.setattr(select, "open_driver", lambda *_: Kept())
    with BuildSandboxes(lambda _line: None) as sandboxes:
        assert sandboxes.check(base_image, ("id", "-u")) == (0, "65534")
        outcome = sandboxes.check(base_image, ("sh", "-c", "echo said; : >/var/tmp/x"))  # anyone may write there
        sent = sandboxes.check(base_image, ("python3", "-c", SEND))
    assert outcome is not None
    assert outcome[0] != 0
    assert outcome[1].startswith("said")
    assert "Read-only file system" in outcome[1]
    assert sent is not None
    assert sent[0] != 0
    assert "unreachable" in sent[1]


def test_a_weaker_driver_checks_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """If ``auto`` finds no strong driver, as for an ordinary user without Docker Engine, checks use ``oci``."""
    calls: list[str] = []

    def open_driver(name: str, *_: object) -> ScriptedDriver:
        calls.append(name)
        if name == "auto":
            raise EngineError("none")
        return driver

    driver = ScriptedDriver()
    image = driver.add_image("recipe:1")
    monkeypatch.setattr(driver, "resolve_image", lambda _reference: image)
    monkeypatch.setattr(select, "open_driver", open_driver)
    with BuildSandboxes(lambda _line: None) as sandboxes:
        assert sandboxes.check(image, ("nothing",)) is not None
        assert sandboxes.check(image, ("nothing",)) is not None
    assert calls == ["auto", "oci"]


def test_without_a_driver_there_is_no_check(monkeypatch: pytest.MonkeyPatch, base_image: ResolvedImage) -> None:
    """Without a driver, ``check`` returns ``None``, so that an image can be built without being checked."""

    def open_driver(*_: object) -> None:
        raise EngineError("none")

    monkeypatch.setattr(select, "open_driver", open_driver)
    with BuildSandboxes(lambda _line: None) as sandboxes:
        assert sandboxes.check(base_image, ("true",)) is None


def test_references_are_whole_at_80_columns() -> None:
    """A table that is too wide wraps references and never cuts them, because users need them for commands."""
    names = [f"securebench/terminal-bench-first10/a-task-with-a-long-name-{number}:1" for number in range(2)]
    rows = [Row(name="x/y", reference=names[0]), Row(reference=names[1], id=f"sha256:{'0' * 64}", place="store")]
    console = Console(file=io.StringIO(), width=80)
    console.print(images_table(rows))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    column = "".join(line.split("│")[1].strip() for line in lines if "│" in line)
    assert column == "".join(names)
    assert not any("…" in line for line in lines)
