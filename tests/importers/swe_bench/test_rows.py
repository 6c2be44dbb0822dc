"""Conversion of SWE-bench rows to repo_patch tasks: fields, images, expected tests, and reported differences."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from importers.swe_records import PATCH, TEST_PATCH, row
from securebench.errors import ConfigError, SourceLocation
from securebench.importers.swe_bench.commands import RUNNERS, changed_paths, command, test_files
from securebench.importers.swe_bench.pins import shipped_pins
from securebench.importers.swe_bench.records import chosen, instance, json_lines
from securebench.importers.swe_bench.rows import SweBenchChoices, imported
from securebench.runner_commands import read_command

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.importers.swe_bench.rows import ImportedInstance

PLACE = SourceLocation("rows.jsonl", 3, 1)
BUILT = SweBenchChoices(build=True, pins=shipped_pins())
test_files.__test__ = False  # type: ignore[attr-defined] # pytest would collect it as a test


def _made(choices: SweBenchChoices | None = None, **changes: Any) -> ImportedInstance:
    return imported(instance(PLACE, row(**changes)), choices or SweBenchChoices())


def test_a_row_becomes_a_task() -> None:
    """The problem statement becomes the instructions. Gold patch, test patch and test command go into ``eval``."""
    task = _made().row.task
    assert task["family"] == "repo_patch"
    assert task["input"] == {
        "repo": "pallets/flask",
        "base_commit": "0123456789abcdef0123456789abcdef01234567",
        "instructions": "two is wrong",
    }
    tests = task["eval"]["tests"]
    assert tests["command"][1:] == ["-m", "pytest", "-rA", "tests/test_app.py"]
    assert tests["test_patch"] == {"source": "inline", "patch": TEST_PATCH}
    assert task["eval"]["gold_patch"] == {"source": "inline", "patch": PATCH}
    assert tests["expect"]["fail_to_pass"] == ["tests/test_app.py::test_two"]
    assert "candidate_policy" not in tests


def test_the_authors_image_is_named_as_they_publish_it() -> None:
    """By default, a task uses the authors' image, and its test command uses the interpreter of that image."""
    task = _made().row.task
    assert task["environment"] == {
        "image": "swebench/sweb.eval.x86_64.pallets_1776_flask-1:latest",
        "workdir": "/testbed",
    }
    assert task["eval"]["tests"]["command"][0] == "/opt/miniconda3/envs/testbed/bin/python"


def test_hints_are_shown_on_demand_alone() -> None:
    """Hints may reveal the solution. Unless they are requested, they are left out and reported as lost."""
    assert "hints" not in _made().row.task["input"]
    assert any("hints_text" in note for note in _made().report.lost)
    assert _made(SweBenchChoices(hints=True)).row.task["input"]["hints"] == "it is 2"


def test_a_sensitive_path_of_the_gold_patch_is_allowed_and_said() -> None:
    """Of all sensitive paths, a candidate may change only those that the gold patch changes. The report names them."""
    made = _made(patch=PATCH.replace("src/flask/app.py", "setup.cfg"))
    assert made.row.task["eval"]["tests"]["candidate_policy"] == {"allow_sensitive_paths": ["setup.cfg"]}
    assert any("setup.cfg" in note for note in made.report.changed)


def test_ids_that_no_runner_could_name_are_left_out_by_name() -> None:
    """An expected test whose id was cut at a space is left out and reported. A complete id with a space is kept."""
    made = _made(PASS_TO_PASS=["tests/test_app.py::test_p[a", "tests/test_app.py::test_p[a b]"])
    assert made.row.task["eval"]["tests"]["expect"]["pass_to_pass"] == ["tests/test_app.py::test_p[a b]"]
    assert any("test_p[a" in note for note in made.report.lost)
    assert "tests in FAIL_TO_PASS: 1 of 1, in PASS_TO_PASS: 1 of 2" in made.report.carried
    with pytest.raises(ConfigError, match="no usable test remains in 'FAIL_TO_PASS'"):
        _made(FAIL_TO_PASS=["tests/test_app.py::test_p[a"])


def test_what_a_release_lacks_is_not_expected_and_is_said() -> None:
    """If a release replaces the row's commit, tests that the release lacks are left out.

    The report names the release and these tests.
    """
    release = shipped_pins().releases["pallets/flask", "2.3"]
    absent = sorted(release.absent)
    made = _made(BUILT, PASS_TO_PASS=["tests/test_app.py::test_one", *absent])
    assert made.row.task["eval"]["tests"]["expect"]["pass_to_pass"] == ["tests/test_app.py::test_one"]
    changes = "\n".join(made.report.changed)
    assert "Flask 2.2.5" in changes
    assert all(name in changes for name in absent)
    assert made.row.task["input"]["base_commit"] == release.commit
    assert made.row.task["metadata"]["upstream_commit"] == row()["base_commit"]
    assert made.row.task["metadata"]["changed"] == made.report.changed


def test_a_recipe_names_source_and_pins() -> None:
    """The recipe of a built image has the image's name, the release with its digest, and pinned requirements."""
    made = _made(BUILT)
    recipe = json.loads(made.image.recipe_text)
    assert recipe["reference"] == made.row.task["environment"]["image"]
    assert recipe["source"]["pypi"]["version"] == "2.2.5"
    assert len(recipe["source"]["pypi"]["sha256"]) == 64
    assert all("==" in requirement for requirement in recipe["requirements"])


@pytest.mark.parametrize("layout", ["flask", "pallets/flask"])
def test_a_clone_is_taken_where_there_is_one(tmp_path: Path, layout: str) -> None:
    """If the user has a clone of the repository, the image is built from the row's commit there, not from a release."""
    (tmp_path / layout).mkdir(parents=True)
    made = _made(SweBenchChoices(build=True, repositories=tmp_path, pins=shipped_pins()))
    recipe = json.loads(made.image.recipe_text)
    assert recipe["source"] == {"git": {"path": str(tmp_path / layout), "commit": row()["base_commit"]}}
    assert made.image.name != _made(BUILT).image.name
    assert made.at("f" * 40).row.task["input"]["base_commit"] == "f" * 40


@pytest.mark.parametrize(
    ("changes", "build", "message"),
    [
        ({"version": "9.9"}, True, "no pins for pallets/flask 9.9"),
        ({"version": "2.2"}, True, "do not contain a release"),
        ({"repo": "nobody/nothing"}, False, "no test command is known for nobody/nothing"),
        ({"test_patch": "diff --git a/x.txt b/x.txt\n--- a/x.txt\n", "FAIL_TO_PASS": ["t"], "PASS_TO_PASS": []}, False,
         "names a test module"),
        ({"test_patch": TEST_PATCH.replace("tests/test_app.py", "-p.py")}, False, "contains the unsafe path '-p.py'"),
        ({"test_patch": TEST_PATCH.replace("tests/test_app.py", "../x.py")}, False, "contains the unsafe path"),
    ],
)  # fmt: skip
def test_a_row_that_no_task_can_be_made_of_is_refused(changes: dict[str, Any], build: bool, message: str) -> None:
    """A row with an unknown repository or version, no test module, or an unsafe path is refused with the reason."""
    with pytest.raises(ConfigError, match=message) as caught:
        _made(SweBenchChoices(build=build, pins=shipped_pins()), **changes)
    assert caught.value.code == "import-row-invalid"
    assert "rows.jsonl:3:1" in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"instance_id": "../x"},
        {"instance_id": ""},
        {"repo": "flask"},
        {"repo": "../../etc/x"},
        {"base_commit": "main"},
        {"problem_statement": None},
        {"patch": " "},
        {"FAIL_TO_PASS": "not json"},
        {"FAIL_TO_PASS": []},
        {"FAIL_TO_PASS": [1]},
        {"PASS_TO_PASS": {"a": 1}},
        {"hints_text": 3},
    ],
)
def test_a_record_that_is_none_is_refused(changes: dict[str, Any]) -> None:
    """A record with a field that is missing, empty or malformed is refused."""
    with pytest.raises(ConfigError) as caught:
        instance(PLACE, row(**changes))
    assert caught.value.code == "import-row-invalid"


def test_lists_and_texts_that_hold_lists_are_the_same_record() -> None:
    """The digest depends only on the fields that define the task, and not on whether a list is written as a string."""
    listed = row(FAIL_TO_PASS=json.loads(row()["FAIL_TO_PASS"]), created_at="2021", hints_text="other", more=1)
    one, other = (imported(instance(PLACE, each), SweBenchChoices()).row for each in (row(), listed))
    assert one.digest == other.digest
    assert one.digest != _made(patch=PATCH.replace("two = 2", "two = 4")).row.digest


def test_instances_are_chosen_by_id_and_others_not_looked_at() -> None:
    """Records are chosen by id, in the requested order, and others are not checked. An unknown id is an error."""
    data = b"\n".join(
        json.dumps(each).encode() for each in (row(), {"instance_id": "broken"}, row(instance_id="b__b-2"))
    )
    refused: list[str] = []
    records = [*json_lines(data + b"\n{broken\n", "rows.jsonl", lambda place, _: refused.append(place))]
    assert refused == ["rows.jsonl:4:1"]
    assert [record["instance_id"] for _, record in chosen(records, ["b__b-2", "pallets__flask-1"])] == [
        "b__b-2",
        "pallets__flask-1",
    ]
    assert len(chosen(records, [])) == 3
    with pytest.raises(ConfigError, match="no instance nobody") as caught:
        chosen(records, ["nobody"])
    assert caught.value.code == "import-row-unknown"


def test_paths_are_read_from_headers_alone() -> None:
    """A removed line that looks like a patch header names no file, and deleted test files are not run."""
    assert changed_paths(TEST_PATCH) == (
        "tests/conftest.py",
        "tests/data.json",
        "tests/test_app.py",
        "tests/test_old.py",
    )
    assert test_files(TEST_PATCH, []) == ("tests/test_app.py",)
    assert test_files("", ["tests/a.py::b", "plain"]) == ("tests/a.py",)


def test_each_repository_runs_its_tests_in_its_way() -> None:
    """All twelve repositories have a recognized command. Django's runner gets module labels, the others get paths."""
    assert len(RUNNERS) == 12
    django = command(RUNNERS["django/django"], "python3", ["tests/a_b/test_c.py"])
    assert django[1] == "./tests/runtests.py"
    assert django[-1] == "a_b.test_c"
    assert command(RUNNERS["sympy/sympy"], "python3", ["sympy/a.py"])[-4:] == [
        "bin/test",
        "-C",
        "--verbose",
        "sympy/a.py",
    ]
    for runner in RUNNERS.values():
        assert read_command(command(runner, "/opt/env/bin/python", ["tests/test_x.py"])) is not None


DJANGO: dict[str, Any] = {
    "repo": "django/django",
    "FAIL_TO_PASS": ["test_two (app.tests.Case.test_two)"],
    "PASS_TO_PASS": ["AlterField should optimize,", "test_one (app.tests.Case)"],
    "test_patch": TEST_PATCH.replace("tests/test_app.py", "tests/app/tests.py"),
}


def test_rows_of_django_expect_tests_by_name() -> None:
    """Django tests are expected by unittest id or by the first line of a docstring. The report counts the latter."""
    made = _made(**DJANGO)
    tests = made.row.task["eval"]["tests"]
    assert tests["expect"] == {"fail_to_pass": DJANGO["FAIL_TO_PASS"], "pass_to_pass": DJANGO["PASS_TO_PASS"]}
    assert read_command(tests["command"]) is not None
    assert any("1 expected test identified by the first line" in note for note in made.report.changed)


def test_rows_of_sympy_expect_functions() -> None:
    """Expected tests of sympy are bare function names, and a note in the report mentions bin/test."""
    made = _made(repo="sympy/sympy", FAIL_TO_PASS=["test_two"], PASS_TO_PASS=["test_one"])
    assert made.row.task["eval"]["tests"]["expect"] == {"fail_to_pass": ["test_two"], "pass_to_pass": ["test_one"]}
    assert any("bin/test" in note for note in made.report.changed)


@pytest.mark.parametrize(
    ("repository", "path"), [("sympy/sympy", "sympy/testing/runtests.py"), ("django/django", "django/test/runner.py")]
)
def test_a_runners_file_that_the_gold_patch_changes_is_allowed(repository: str, path: str) -> None:
    """A candidate may change a file of the repository's own test runner if the gold patch changes it."""
    made = _made(**{**DJANGO, "repo": repository, "patch": PATCH.replace("src/flask/app.py", path)})
    assert made.row.task["eval"]["tests"]["candidate_policy"] == {"allow_sensitive_paths": [path]}
