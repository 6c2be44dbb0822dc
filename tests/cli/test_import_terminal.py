"""``securebench import harbor`` and ``terminal-bench``: their options, their reports and the packs that they write."""

from __future__ import annotations

import json
import re
import zipfile
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from importers.terminal_tasks import HARBOR, TERMINAL_BENCH, lay_out
from importers.wheels import installed_wheels, wheel
from securebench.benchmark_compiler import compile_benchmark_pack
from securebench.benchmark_pack import load_benchmark_pack
from securebench.cli.images_command import command as images
from securebench.cli.import_command import command
from securebench.errors import ConfigError
from securebench.resources import Component
from securebench.strict_input.yaml_text import parse_yaml

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

_LARGE = 20 * 1024 * 1024
"""A size limit in bytes: larger than pytest with its dependencies, but small enough to write quickly."""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory of wheels, so that imports need no package index."""
    return installed_wheels(tmp_path_factory.mktemp("wheels"))


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    """Return a directory with three tasks. Two are valid. The test script of the third, ``odd``, cannot be imported."""
    root = tmp_path / "tasks"
    lay_out(root / "one", HARBOR)
    lay_out(root / "two", HARBOR, {"instruction.md": "Another.\n"})
    lay_out(root / "odd", HARBOR, {"tests/test.sh": "./grade --all\n"})
    return root


def _run(*arguments: object) -> Result:
    result = CliRunner().invoke(command, [str(argument) for argument in arguments])
    if isinstance(result.exception, ConfigError):
        raise result.exception
    return result


def _ids(pack: Path) -> list[str]:
    return [json.loads(line)["id"] for line in (pack / "tasks.jsonl").read_text().splitlines()]


def test_a_directory_of_tasks_becomes_a_pack_that_loads(tasks: Path, wheels: Path, tmp_path: Path) -> None:
    """Each task becomes a row. The agent sees only the instructions, and no files such as tests or the solution."""
    pack = tmp_path / "pack"
    result = _run("harbor", tasks / "one", tasks / "two", "--output", pack, "--wheels", wheels)
    assert result.exit_code == 0, result.output
    compiled = compile_benchmark_pack(load_benchmark_pack(pack / "manifest.yaml", pack / "tasks.jsonl"))
    assert [task.id for task in compiled] == ["harbor/one", "harbor/two"]
    shown = compiled[0].resources.visible_to(Component.AGENT)
    assert list(compiled[0].agent_payload()) == ["instructions"]
    assert not any(resource.files for resource in shown)
    assert "2 imported, 0 not" in result.output


def test_a_task_that_cannot_be_imported_stops_the_import_by_name(tasks: Path, wheels: Path, tmp_path: Path) -> None:
    """An unusable task stops the import, and nothing is written. With `--skip-unusable` it is skipped and reported."""
    pack = tmp_path / "pack"
    with pytest.raises(ConfigError, match=r"odd.*grade --all") as caught:
        _run("harbor", tasks, "--output", pack, "--wheels", wheels)
    assert caught.value.code == "import-task-refused"
    assert not pack.exists()
    result = _run("harbor", tasks, "--output", pack, "--wheels", wheels, "--skip-unusable")
    assert _ids(pack) == ["harbor/one", "harbor/two"]
    assert "odd: NOT imported" in result.output
    assert "./grade --all" in result.output
    assert "2 imported, 1 not" in result.output


def test_the_report_is_there_for_programs(tasks: Path, wheels: Path, tmp_path: Path) -> None:
    """`--json` prints a list with every task, and nothing else on stdout."""
    result = _run("harbor", tasks, "--output", tmp_path / "pack", "--wheels", wheels, "--skip-unusable", "--json")
    report = json.loads(result.stdout)
    assert [(one["task"], one["imported"]) for one in report] == [("one", True), ("two", True), ("odd", False)]
    assert any("time limit of the agent" in note for note in report[0]["carried"])
    assert report[2]["refused"]


def test_where_no_task_is_left_each_reason_is_in_the_report(tasks: Path, wheels: Path, tmp_path: Path) -> None:
    """If every task is refused, the import fails, and the report has the reasons, as text and as JSON."""
    arguments = ["harbor", tasks / "odd", "--output", tmp_path / "pack", "--wheels", wheels, "--skip-unusable"]
    for flags in ([], ["--json"]):
        result = CliRunner().invoke(command, [str(argument) for argument in [*arguments, *flags]])
        assert isinstance(result.exception, ConfigError)
        assert result.exception.code == "import-nothing-left"
        assert "./grade --all" in result.stdout
    assert [one["task"] for one in json.loads(result.stdout)] == ["odd"]


@pytest.mark.long
def test_a_task_whose_packages_cannot_be_fetched_is_left_out(
    tasks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing, a hostile and a too large wheel each exclude only the task that needs it, and the report says why."""
    monkeypatch.setattr("securebench.importers.terminal.wheels.MAX_ASSET_BYTES", _LARGE)
    wheels = installed_wheels(tmp_path / "some-wheels")
    wheel(wheels, "hostile", {"../outside.py": "x = 1\n"})
    huge = wheel(wheels, "huge", {})
    with zipfile.ZipFile(huge, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("huge.so", bytes(_LARGE))
    script = HARBOR["tests/test.sh"]
    for name in ("hostile", "huge", "missing"):
        with_package = script.replace("-w pytest-json-ctrf==0.3.5", f"-w {name}==1.0")
        lay_out(tasks / name, HARBOR, {"tests/test.sh": with_package})
    pack = tmp_path / "pack"
    with pytest.raises(ConfigError) as caught:
        _run("harbor", tasks / "one", tasks / "huge", "--output", pack, "--wheels", wheels)
    assert [(each.code, "--skip-unusable" in each.hint) for each in caught.value.problems] == [
        ("import-too-large", True)
    ]
    result = _run("harbor", tasks, "--output", pack, "--wheels", wheels, "--skip-unusable", "--json")
    assert _ids(pack) == ["harbor/one", "harbor/two"]
    reasons = {one["task"]: one["refused"] for one in json.loads(result.stdout) if not one["imported"]}
    assert reasons.keys() == {"hostile", "huge", "missing", "odd"}
    assert "unsafe name" in reasons["hostile"]
    assert re.search(r"too large for a pack \(huge==1.0: \d+ files, \d+ MB\)", reasons["huge"])
    assert "missing==1.0" in reasons["missing"]


def test_a_task_that_is_too_large_for_a_pack_is_left_out(
    tasks: Path, wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report also has problems that are found only when the whole pack is checked, such as too large tests."""
    monkeypatch.setattr("securebench.benchmark_pack.assets.MAX_ASSET_BYTES", _LARGE)
    (tasks / "two" / "tests" / "data.bin").write_bytes(bytes(_LARGE + 1))
    pack = tmp_path / "pack"
    result = _run("harbor", tasks, "--output", pack, "--wheels", wheels, "--skip-unusable", "--json")
    assert _ids(pack) == ["harbor/one"]
    reasons = {one["task"]: one["refused"] for one in json.loads(result.stdout) if not one["imported"]}
    assert "more than" in reasons["two"]


def test_how_to_go_on_is_said(tasks: Path, wheels: Path, tmp_path: Path) -> None:
    """After an import, the next commands are printed: build the images, then validate the pack."""
    result = _run("harbor", tasks / "one", "--output", tmp_path / "pack", "--wheels", wheels)
    pack = tmp_path / "pack"
    assert f"next:\n  securebench images build {pack}/images\n  securebench validate {pack}\n" in result.output


def test_recipes_are_written_with_their_stand_ins(tasks: Path, wheels: Path, tmp_path: Path) -> None:
    """The reference of a task's recipe is the image of the task's row.

    `--base-image` is written to the recipe as an entry of ``base_images``.
    """
    pack = tmp_path / "pack"
    stand_in = "ubuntu:24.04=securebench/python:3.11"
    _run("harbor", tasks / "one", "--output", pack, "--wheels", wheels, "--base-image", stand_in)
    text = (pack / "images" / "one" / "recipe.yaml").read_text()
    recipe, _, faults = parse_yaml(text, "recipe.yaml")
    assert not faults
    assert isinstance(recipe, dict)
    row = json.loads((pack / "tasks.jsonl").read_text())
    assert recipe["reference"] == row["environment"]["image"]
    assert recipe["base_images"] == {"ubuntu:24.04": "securebench/python:3.11"}


@pytest.mark.parametrize(
    "option",
    [
        ("--base-image", "nothing"),
        ("--base-image", "=x"),
        ("--base-image", "x="),
        ("--python", "python3"),
    ],
)
def test_options_that_say_nothing_are_wrong_usage(tasks: Path, tmp_path: Path, option: tuple[str, str]) -> None:
    """A `--base-image` that is not a pair of references, or a `--python` that is not a version, is wrong usage."""
    assert _run("harbor", tasks, "--output", tmp_path / "pack", *option).exit_code == 2


@pytest.mark.parametrize("text", ["nothing", "=x", "x="])
def test_a_wrong_base_image_has_the_same_error_in_every_command(tasks: Path, tmp_path: Path, text: str) -> None:
    """An invalid `--base-image` has the same error in `import` and `images build`, in the form of click's errors."""
    option = ("--base-image", text)
    imported = _run("harbor", tasks, "--output", tmp_path / "pack", *option).stderr.splitlines()[-1]
    built = CliRunner().invoke(images, ["build", *option]).stderr.splitlines()[-1]
    assert imported == built
    assert imported.startswith("Error: Invalid value for '--base-image': ")


def test_a_directory_without_tasks_is_an_error(tmp_path: Path) -> None:
    """If a directory has no tasks, the error names the file that every task has."""
    with pytest.raises(ConfigError, match=r"no task\.yaml"):
        _run("terminal-bench", tmp_path, "--output", tmp_path / "pack")


def test_the_first_format_is_imported_too(tmp_path: Path, wheels: Path) -> None:
    """`import terminal-bench` imports a task in the older format, with task.yaml and run-tests.sh."""
    lay_out(tmp_path / "tasks" / "one", TERMINAL_BENCH)
    _run("terminal-bench", tmp_path / "tasks", "--output", tmp_path / "pack", "--wheels", wheels)
    assert _ids(tmp_path / "pack") == ["terminal-bench/one"]


def test_a_lock_by_names_needs_trust_and_can_be_made_firm(tasks: Path, wheels: Path, tmp_path: Path) -> None:
    """A lock without digests needs `--trust-new`. With a lock from `--write-lock`, a changed task is refused."""
    pack = tmp_path / "pack"
    pack.mkdir()
    (pack / "lock.json").write_text(json.dumps({"benchmark": "harbor", "rows": {"harbor/two": None}}))
    arguments = ("harbor", tasks, "--output", pack, "--wheels", wheels)
    with pytest.raises(ConfigError) as caught:
        _run(*arguments)
    assert caught.value.code == "import-lock-unpinned"
    assert not (pack / "tasks.jsonl").exists()
    _run(*arguments, "--trust-new")
    assert _ids(pack) == ["harbor/two"]
    firm = tmp_path / "firm.json"
    _run("harbor", tasks / "two", "--output", pack, "--wheels", wheels, "--lock", firm, "--write-lock", "--force")
    _run("harbor", tasks, "--output", tmp_path / "other", "--wheels", wheels, "--lock", firm)
    (tasks / "two" / "tests" / "expected.json").write_text('{"errors": 9}')
    with pytest.raises(ConfigError) as caught:
        _run("harbor", tasks, "--output", tmp_path / "third", "--wheels", wheels, "--lock", firm)
    assert caught.value.code == "import-lock-mismatch"


def test_a_task_of_the_lock_that_is_refused_is_left_out_like_any_other(
    tasks: Path, wheels: Path, tmp_path: Path
) -> None:
    """With `--skip-unusable`, a task of the lock is left out if it cannot be imported.

    A task of the lock that is not in the source is an error.
    """
    lock = tmp_path / "lock.json"
    arguments = ("harbor", tasks, "--wheels", wheels, "--trust-new", "--skip-unusable", "--lock", lock)
    lock.write_text(json.dumps({"benchmark": "harbor", "rows": {"harbor/odd": None, "harbor/one": None}}))
    result = _run(*arguments, "--output", tmp_path / "pack")
    assert _ids(tmp_path / "pack") == ["harbor/one"]
    assert "odd: NOT imported" in result.output
    lock.write_text(json.dumps({"benchmark": "harbor", "rows": {"harbor/gone": None, "harbor/one": None}}))
    with pytest.raises(ConfigError, match="harbor/gone is in the lock but not in the source"):
        _run(*arguments, "--output", tmp_path / "other")


def test_files_of_another_import_do_not_stay_in_the_pack(tasks: Path, wheels: Path, tmp_path: Path) -> None:
    """An unexpected file in a task's image directory stops the import; with `--force` the directory is replaced."""
    pack = tmp_path / "pack"
    arguments = ("harbor", tasks / "one", "--output", pack, "--wheels", wheels)
    _run(*arguments)
    stray = pack / "images" / "one" / "context" / "stray"
    stray.write_text("x")
    with pytest.raises(ConfigError) as caught:
        _run(*arguments)
    assert caught.value.code == "import-output-exists"
    _run(*arguments, "--force")
    assert not stray.exists()
    assert not list(pack.rglob(".import-*"))
