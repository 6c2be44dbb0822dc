"""``securebench images``: what it prints, and that it builds only what is missing."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from securebench.cli.images_command import command
from securebench.images import build as build_module
from securebench.images.build import ImageState
from securebench.images.recipes import Recipe, all_recipes

if TYPE_CHECKING:
    from collections.abc import Callable

    from securebench.images.engine import Engine

pytestmark = pytest.mark.engine

BASE = "securebench/python:3.11"


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """Replace the building itself; give what was asked for: the recipe, and whether tools may be installed."""
    asked: list[tuple[str, bool]] = []

    def build_image(
        _engine: Engine, recipe: Recipe, report: Callable[[str], None], *, install_tools: bool = False
    ) -> ImageState:
        asked.append((recipe.name, install_tools))
        report("extracting [archives]")
        return ImageState(recipe, "sha256:" + "ab" * 32, 1_000_000)

    monkeypatch.setattr(build_module, "build_image", build_image)
    return asked


@pytest.fixture
def nothing_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the engine have no image."""
    monkeypatch.setattr(build_module, "image_state", lambda _engine, recipe: ImageState(recipe))


def test_what_is_there_is_not_built_again(engine: Engine, built: list[tuple[str, bool]]) -> None:
    """A second build says that the image is there, with its id, and does nothing."""
    done = CliRunner().invoke(command, ["build", "python-3.11"])
    assert done.exit_code == 0, done.output
    assert re.fullmatch(rf"python-3\.11: {BASE} is there \(sha256:[0-9a-f]{{12}}\)\n", done.stdout)
    assert built == []


def test_what_is_missing_is_built_with_its_stages_shown(
    engine: Engine, built: list[tuple[str, bool]], nothing_built: None
) -> None:
    """Without a name every recipe is built; stages go to stderr as plain lines, the result to stdout."""
    done = CliRunner().invoke(command, ["build"])
    assert done.exit_code == 0, done.output
    assert built == [(recipe.name, False) for recipe in all_recipes()]
    assert "python-3.11: extracting [archives]\n" in done.stderr
    assert re.search(rf"^python-3\.11: built {BASE} \(sha256:abababababab\) in 0 s$", done.stdout, re.MULTILINE)


def test_force_builds_what_is_there(engine: Engine, built: list[tuple[str, bool]]) -> None:
    """With --force the image is built whatever there is."""
    assert CliRunner().invoke(command, ["build", BASE, "--force", "--install-tools"]).exit_code == 0
    assert built == [("python-3.11", True)]


def test_an_unknown_name_is_an_error_that_helps(engine: Engine) -> None:
    """The whole command line: one message on stderr with a near name, and exit code 1."""
    done = subprocess.run(
        [sys.executable, "-m", "securebench", "images", "build", "python-3.1"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "did you mean 'python-3.11'?" in done.stderr
    assert "recipe-unknown" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_list_is_plain_where_no_terminal_is(engine: Engine) -> None:
    """A line a recipe, its fields between tabs: name, reference, built, id, size."""
    done = CliRunner().invoke(command, ["list"])
    assert done.exit_code == 0, done.output
    fields = done.stdout.splitlines()[0].split("\t")
    assert fields[:3] == ["python-3.11", BASE, "yes"]
    assert re.fullmatch(r"sha256:[0-9a-f]{12}", fields[3])
    assert re.fullmatch(r"\d+ MB", fields[4])


def test_the_list_says_what_is_not_built(engine: Engine, nothing_built: None) -> None:
    """An image that the engine does not have has neither id nor size."""
    assert CliRunner().invoke(command, ["list"]).stdout.splitlines()[0].split("\t")[2:] == ["no", "-", "-"]
    entry = json.loads(CliRunner().invoke(command, ["list", "--json"]).stdout)[0]
    assert (entry["built"], entry["id"], entry["size_bytes"]) == (False, None, None)


def test_the_list_as_json_has_the_whole_id(engine: Engine) -> None:
    """The id is the one that a record of a run holds."""
    entry = json.loads(CliRunner().invoke(command, ["list", "--json"]).stdout)[0]
    assert set(entry) == {"name", "reference", "summary", "built", "id", "size_bytes"}
    assert entry["id"] == engine.client.inspect_image(BASE)["Id"]  # type: ignore[no-untyped-call]  # so the stubs


def test_on_a_terminal_the_list_is_a_table(engine: Engine) -> None:
    """With headings and borders."""
    master, slave = pty.openpty()
    environment = os.environ | {"COLUMNS": "120", "TERM": "xterm"}
    argv = [sys.executable, "-m", "securebench", "images", "list"]
    subprocess.run(argv, check=True, stdout=slave, env=environment)
    os.close(slave)
    shown = os.read(master, 65536).decode()
    os.close(master)
    assert "reference" in shown
    assert "│" in shown
    assert BASE in shown
