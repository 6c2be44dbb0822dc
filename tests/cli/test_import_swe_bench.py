"""``securebench import swe-bench``: its options, its report and the packs that it writes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from importers.records import lines
from importers.swe_records import row
from securebench.benchmark_compiler import compile_benchmark_pack
from securebench.benchmark_pack import load_benchmark_pack
from securebench.cli.import_command import command
from securebench.errors import ConfigError, ImageError
from securebench.images.build.derived.content import content_layer
from securebench.images.build.git.model import FILE, SourceFile, SourceTree
from securebench.images.build.git.writing import fresh_repository
from securebench.images.build.recipe_file import read_recipe
from securebench.images.build.recipe_kinds import DerivedRecipe
from securebench.importers.swe_bench.pins import shipped_pins

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

    from securebench.importers.swe_bench.rows import ImportedInstance


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a file of three rows. No image can be built for the version of the last one."""
    path = tmp_path / "rows.jsonl"
    rows = [row(), row(instance_id="pallets__flask-2"), row(instance_id="pallets__flask-3", version="9.9")]
    path.write_bytes(lines(*rows))
    return path


def _run(*arguments: object) -> Result:
    result = CliRunner().invoke(command, ["swe-bench", *(str(argument) for argument in arguments)])
    if isinstance(result.exception, ConfigError):
        raise result.exception
    return result


def _ids(pack: Path) -> list[str]:
    return [json.loads(line)["id"] for line in (pack / "tasks.jsonl").read_text().splitlines()]


def test_rows_become_a_pack_that_loads_and_gives_nothing_away(source: Path, tmp_path: Path) -> None:
    """The agent sees the problem statement, but neither the patches nor the test ids nor the hints."""
    pack = tmp_path / "pack"
    assert _run(source, "--output", pack).exit_code == 0
    tasks = compile_benchmark_pack(load_benchmark_pack(pack / "manifest.yaml", pack / "tasks.jsonl"))
    assert len(tasks) == 3
    shown = json.dumps(tasks[0].agent_payload())
    assert "two is wrong" in shown
    assert not any(secret in shown for secret in ("two = 2", "test_two", "it is 2"))


def test_instances_are_chosen_by_id(source: Path, tmp_path: Path) -> None:
    """`--instance` selects rows in the given order. The lock may have more rows, but a row that differs is refused."""
    pack = tmp_path / "pack"
    _run(source, "--output", pack, "--write-lock")
    wanted = ("--instance", "pallets__flask-2", "--instance", "pallets__flask-1")
    _run(source, "--output", pack, *wanted, "--force")
    assert _ids(pack) == ["pallets__flask-2", "pallets__flask-1"]
    changed = tmp_path / "changed.jsonl"
    changed.write_bytes(lines(row(problem_statement="other")))
    with pytest.raises(ConfigError) as caught:
        _run(changed, "--output", pack, "--instance", "pallets__flask-1", "--force")
    assert caught.value.code == "import-lock-mismatch"


def test_recipes_are_written_for_what_can_be_built(source: Path, tmp_path: Path) -> None:
    """A row whose image cannot be built stops the import.

    With `--skip-unusable`, the other rows get recipes and base commits.
    """
    pack = tmp_path / "pack"
    with pytest.raises(ConfigError, match="pallets__flask-3: no pins for"):
        _run(source, "--images", "build", "--output", pack)
    assert not pack.exists()
    result = _run(source, "--images", "build", "--output", pack, "--skip-unusable", "--json")
    report = json.loads(result.stdout)
    assert [one["imported"] for one in report] == [True, True, False]
    assert "no pins" in report[2]["refused"]
    assert sorted(path.parent.name for path in pack.glob("images/*/recipe.yaml")) == _ids(pack)
    first = json.loads((pack / "tasks.jsonl").read_text().splitlines()[0])
    assert first["input"]["base_commit"] == shipped_pins().releases["pallets/flask", "2.3"].commit


def test_rows_that_cannot_be_read_or_fetched_are_left_out_by_name(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `--skip-unusable`, damaged rows and rows whose sources cannot be fetched are skipped and reported.

    Other rows are imported. It is an error if no row is left.
    """
    source.write_bytes(b"{no json\n" + source.read_bytes())
    gone = {"pallets__flask-1"}

    def fetched(one: ImportedInstance) -> ImportedInstance:
        if one.row.id in gone:
            raise ImageError("the index is gone", code="source-unavailable")
        return one

    monkeypatch.setattr("securebench.cli.import_swe_bench._at_its_commit", fetched)
    arguments = ["--images", "build", "--json", "--skip-unusable", "--output"]
    result = _run(source, *arguments, tmp_path / "pack")
    assert result.exit_code == 0, result.output
    assert _ids(tmp_path / "pack") == ["pallets__flask-2"]
    reasons = {one["task"]: one["refused"] for one in json.loads(result.stdout)}
    assert reasons[f"{source}:1:1"]
    assert reasons["pallets__flask-1"] == "the index is gone"
    assert reasons["pallets__flask-2"] == ""
    assert "no pins" in reasons["pallets__flask-3"]
    gone.add("pallets__flask-2")
    with pytest.raises(ConfigError) as caught:
        _run(source, *arguments, tmp_path / "empty")
    assert caught.value.code == "import-nothing-left"
    with pytest.raises(ConfigError, match="--skip-unusable"):
        _run(source, "--output", tmp_path / "other")


def test_a_users_pins_make_more_rows_buildable(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `--pins`, versions without built-in pins get recipes. `--pins` needs `--images build`."""
    monkeypatch.setattr("securebench.cli.import_swe_bench._at_its_commit", lambda one: one)
    pins = tmp_path / "pins.yaml"
    pins.write_text(
        "setups:\n  - repository: pallets/flask\n    requirements: [pytest==7.3.1]\n"
        f'    versions: {{"9.9": {{release: {{name: Flask, version: "2.2.5", sha256: "{"0" * 64}"}}}}}}\n'
    )
    pack = tmp_path / "pack"
    _run(source, "--images", "build", "--pins", pins, "--output", pack)
    assert _ids(pack) == ["pallets__flask-1", "pallets__flask-2", "pallets__flask-3"]
    recipe = read_recipe(pack / "images" / "pallets__flask-3" / "recipe.yaml")
    assert isinstance(recipe, DerivedRecipe)
    assert recipe.requirements == ("pytest==7.3.1",)
    assert _run(source, "--pins", pins, "--output", tmp_path / "other").exit_code == 2


def test_a_row_is_at_the_commit_that_its_image_will_have(tmp_path: Path) -> None:
    """A build from a clone creates a new commit: the row's base commit. The authors' commit is in the metadata."""
    tree = SourceTree({b"src/flask/app.py": SourceFile(FILE, b"one = 1\ntwo = 3\n")})
    clone = fresh_repository(tree, "as it was upstream")
    for path, data in clone.files.items():
        place = tmp_path / "repos" / "flask" / ".git" / path.decode()
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    source = tmp_path / "rows.jsonl"
    source.write_bytes(lines(row(base_commit=clone.commit)))
    pack = tmp_path / "pack"
    _run(source, "--images", "build", "--repos", tmp_path / "repos", "--output", pack)
    task = json.loads((pack / "tasks.jsonl").read_text())
    recipe = read_recipe(pack / "images" / "pallets__flask-1" / "recipe.yaml")
    assert isinstance(recipe, DerivedRecipe)
    assert task["input"]["base_commit"] == content_layer(recipe, tree)[1] != clone.commit
    assert task["metadata"]["upstream_commit"] == clone.commit


def test_a_parquet_file_is_read_by_its_name(tmp_path: Path) -> None:
    """A file named *.parquet is read as Parquet: the error reports a missing extra or an invalid file."""
    path = tmp_path / "rows.parquet"
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(ConfigError) as caught:
        _run(path, "--output", tmp_path / "pack")
    assert caught.value.code in ("import-extra-missing", "import-archive-invalid")
