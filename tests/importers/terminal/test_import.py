"""Conversion of task directories to rows: what is public, what is hidden, and what the report says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from importers.terminal_tasks import HARBOR, TERMINAL_BENCH, TESTS, lay_out
from securebench.errors import ConfigError
from securebench.importers.terminal.harbor import read_harbor
from securebench.importers.terminal.rows import TerminalChoices, finished, imported
from securebench.importers.terminal.terminal_bench import read_terminal_bench

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.importers.terminal.rows import ImportedTask

CHOICES = TerminalChoices({"ubuntu:24.04": "securebench/python:3.11"})


Changes = Mapping[str, str | None]


def _harbor(tmp_path: Path, changes: Changes | None = None, *, choices: TerminalChoices = CHOICES) -> ImportedTask:
    return imported(read_harbor(lay_out(tmp_path / "sum-the-log", HARBOR, changes)), choices)


def _first(tmp_path: Path, changes: Changes | None = None) -> ImportedTask:
    return imported(read_terminal_bench(lay_out(tmp_path / "sum-the-log", TERMINAL_BENCH, changes)), TerminalChoices())


def _refusal(tmp_path: Path, changes: Changes, *, first: bool = False) -> str:
    with pytest.raises(ConfigError) as caught:
        _ = _first(tmp_path, changes) if first else _harbor(tmp_path, changes)
    assert caught.value.code == "import-task-refused"
    return str(caught.value)


def test_a_harbor_task_becomes_a_row(tmp_path: Path) -> None:
    """A row has the task's instruction, working directory and limits. Its image is named after the task."""
    row = _harbor(tmp_path).row.task
    assert row["id"] == "harbor/sum-the-log"
    assert row["input"] == {"instructions": HARBOR["instruction.md"]}
    image = row["environment"].pop("image")
    assert image.startswith("securebench/harbor/sum-the-log:")
    assert row["environment"] == {
        "workdir": "/app",
        "materialize_workdir_from_image": True,
        "timeout_seconds": 120.0,
    }
    assert row["eval"]["checker"]["timeout_seconds"] == 60.0
    assert row["metadata"]["limits"] == {"memory_gib": 2.0, "cpus": 1.0, "storage_gib": 10.0}


def test_the_checker_is_our_runner_in_isolation(tmp_path: Path) -> None:
    """The checker runs SecureBench's runner in isolation.

    If the task's script uses pip, the runner still sees the Python packages of the image.
    """
    row = _harbor(tmp_path).row.task
    command = row["eval"]["checker"]["command"]
    assert command == ["python3", "-I", "-S", "/app/securebench/evaluation_inputs/run_tests.py"]
    script = "pip install pytest\npytest /tests/test_outputs.py\n"
    shared = _harbor(tmp_path / "pip", {"tests/test.sh": script}).row.task
    assert shared["eval"]["checker"]["command"][:2] == ["python3", "-I"]
    assert "-S" not in shared["eval"]["checker"]["command"]


def test_tests_and_solution_are_hidden_and_nowhere_else(tmp_path: Path) -> None:
    """Tests and solution are hidden files, and the image's build context does not contain them."""
    for one in (_harbor(tmp_path / "2"), _first(tmp_path / "1")):
        row, trees = finished(one, "site/x", "x")
        image = {path for root, files in trees.items() if root.startswith("images/") for path in files}
        assert image == {"Dockerfile", "recipe.yaml", "context/app.log"} | ({"context/Dockerfile"} & image)
        hidden = {
            f"{root.split('/')[-1]}/{path}" for root, files in trees.items() if "images/" not in root for path in files
        }
        assert {"tests/test_outputs.py", "tests/expected.json", "runner/run_tests.py"} <= hidden
        assert any(path.startswith("solution/") for path in hidden)
        public = str(row.task["input"]) + str(row.task["environment"])
        assert "expected" not in public
        assert not any("solution" in str(value) for value in row.task["eval"].values())


@pytest.mark.parametrize("read", [_harbor, _first])
def test_a_task_may_have_no_solution(tmp_path: Path, read: Callable[..., ImportedTask]) -> None:
    """A solution is reported as hidden only if the task has one."""
    assert "instruction, 2 test files (hidden), solution (hidden)" in read(tmp_path / "with").task.report.carried
    one = read(tmp_path / "without", {"solution/solve.sh": None, "solution.sh": None})
    assert "instruction, 2 test files (hidden)" in one.task.report.carried
    assert not any(root.endswith("/solution") for root in one.trees)


def test_tests_find_their_files_where_they_lie_here(tmp_path: Path) -> None:
    """In test files, `/tests` is replaced by the tests' path in the checker's sandbox. The report says so."""
    one = _harbor(tmp_path)
    files = next(files for root, files in one.trees.items() if root.endswith("/tests"))
    text = files["test_outputs.py"].data.decode()
    assert 'Path("/app/securebench/evaluation_inputs/tests/expected.json")' in text
    assert text.replace("/app/securebench/evaluation_inputs/tests", "/tests") == TESTS
    assert any("test_outputs.py" in note for note in one.task.report.changed)


def test_other_words_with_tests_in_them_stay(tmp_path: Path) -> None:
    """Only the absolute path `/tests` is replaced: not `/app/tests`, `a/tests` or `/tests2`."""
    text = "A = ['/app/tests/x', 'a/tests/y', '/tests2', '/testsuite/', \"/tests\"]\n\n\ndef test_a():\n    pass\n"
    one = _harbor(tmp_path, {"tests/test_outputs.py": text})
    files = next(files for root, files in one.trees.items() if root.endswith("/tests"))
    moved = text.replace('"/tests"', '"/app/securebench/evaluation_inputs/tests"')
    assert files["test_outputs.py"].data.decode() == moved


def test_the_plan_names_every_test(tmp_path: Path) -> None:
    """The test names that a run must report are read from the tests' source. A method's name includes its class."""
    one = _harbor(tmp_path)
    assert one.plan["expected"] == ["test_summary_is_right", "TestProgram::test_program_counts_any_log"]
    assert one.plan["tests"] == ["tests/test_outputs.py"]


def test_what_has_no_place_is_reported_by_name(tmp_path: Path) -> None:
    """Limits, build time, unknown keys and paths outside the working directory are reported as lost, each by name."""
    toml = HARBOR["task.toml"] + "mystery = 1\n\n[steps]\nx = 1\n"
    tests = TESTS + "\n\ndef test_service():\n    assert open('/etc/nginx.conf').read()\n"
    lost = "\n".join(_harbor(tmp_path, {"task.toml": toml, "tests/test_outputs.py": tests}).task.report.lost)
    for name in ("mystery", "steps", "memory_gib 2", "cpus 1", "build_timeout_sec", "/etc/nginx.conf", "expert_time"):
        assert name in lost, lost


def test_an_image_without_python_gets_a_checker_image(tmp_path: Path) -> None:
    """If the task's image has no Python, a second recipe adds it in a separate image for the checker only."""
    one = _harbor(tmp_path, choices=TerminalChoices())
    checker = one.row.task["eval"]["checker"]["image"]
    assert checker != one.row.task["environment"]["image"]
    recipe = one.trees["images/sum-the-log-checker"]["Dockerfile"].data.decode()
    assert recipe.startswith(f"FROM {one.row.task['environment']['image']}\n")
    assert "python3" in recipe
    assert "image" not in _harbor(tmp_path / "b").row.task["eval"]["checker"]


def test_the_authors_image_is_taken_on_demand(tmp_path: Path) -> None:
    """With the choice `registry`, the image that the task names is used, and no recipe is written."""
    toml = HARBOR["task.toml"] + 'docker_image = "authors/sum:1"\n'
    one = _harbor(tmp_path, {"task.toml": toml}, choices=replace(CHOICES, registry=True))
    assert one.row.task["environment"]["image"] == "authors/sum:1"
    assert "images/sum-the-log" not in one.trees
    built = _harbor(tmp_path / "b", {"task.toml": toml})
    assert built.row.task["environment"]["image"] != "authors/sum:1"


def test_stand_ins_for_base_images_go_into_the_recipe(tmp_path: Path) -> None:
    """The recipe lists only the replacements of base images that the Dockerfile uses."""
    choices = TerminalChoices({"ubuntu:24.04": "securebench/python:3.11", "other:1": "x:1"})
    recipe = _harbor(tmp_path, choices=choices).trees["images/sum-the-log"]["recipe.yaml"].data.decode()
    assert '"ubuntu:24.04": "securebench/python:3.11"' in recipe
    assert "other" not in recipe


def test_a_working_directory_may_be_named_where_the_dockerfile_sets_none(tmp_path: Path) -> None:
    """A task without WORKDIR is refused, unless the user passes the working directory of its base image."""
    dockerfile: Changes = {"environment/Dockerfile": "FROM ubuntu:24.04\n"}
    assert "--workdir" in _refusal(tmp_path, dockerfile)
    row = _harbor(tmp_path / "b", dockerfile, choices=replace(CHOICES, workdir="/work")).row.task
    assert row["environment"]["workdir"] == "/work"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"task.toml": "not toml"}, "TOML"),
        ({"task.toml": "verifier = 1"}, "not a table"),
        ({"task.toml": None}, "has no task.toml"),
        ({"instruction.md": None}, "has no instruction.md"),
        ({"environment/Dockerfile": None}, "has no environment/Dockerfile"),
        ({"tests/test.sh": None}, "has no tests/test.sh"),
        ({"tests/test.sh": "./grade\n"}, "line 1: unknown command: ./grade"),
        ({"tests/test_outputs.py": None}, "tests that do not exist"),
        ({"tests/test_outputs.py": "x = 1\n"}, "no test function found"),
        ({"tests/test_outputs.py": "def ("}, "not valid Python"),
        ({"task.toml": "[verifier]\ntimeout_sec = -1"}, "not a number above 0"),
        ({"task.toml": "[verifier]\ntimeout_sec = nan"}, "not a number above 0"),
        ({"task.toml": f"[verifier]\ntimeout_sec = 1{'0' * 400}"}, "not a number above 0"),
        ({"task.toml": '[environment]\nmemory = "much"'}, "not a size"),
        ({"task.toml": '[environment]\nmemory = "11T"'}, "'11T' is more than 10000 GiB"),
        ({"task.toml": f'[environment]\nstorage = "{"9" * 400}"'}, "is more than 10000 GiB"),
        ({"task.toml": '[verifier.env]\nKEY = "x"'}, "environment variables"),
        ({"environment/docker-compose.yaml": "services: {}"}, "several containers"),
        ({"environment/Dockerfile": "FROM x\nWORKDIR /etc\n"}, "system"),
    ],
)
def test_a_harbor_task_that_cannot_be_carried_over_is_refused_with_the_reason(
    tmp_path: Path, changes: Changes, reason: str
) -> None:
    """A Harbor task that is incomplete, unsafe or unsupported is refused, and the error states the reason."""
    assert reason in _refusal(tmp_path, changes)


def test_a_first_format_task_becomes_a_row(tmp_path: Path) -> None:
    """A task in Terminal-Bench's first format keeps its instruction and time limit, and gets a checker image."""
    row = _first(tmp_path).row.task
    assert row["id"] == "terminal-bench/sum-the-log"
    assert row["input"]["instructions"].startswith("Write /app/count.sh")
    assert row["environment"]["timeout_seconds"] == 120.0
    assert row["eval"]["checker"]["image"].startswith("securebench/terminal-bench/sum-the-log-checker:")


_HIDDEN = {"environment/tests/test_outputs.py": HARBOR["tests/test_outputs.py"], "environment/tests/sim.c": "int x;\n"}
_HEAD = "FROM x\nWORKDIR /app\n"


@pytest.mark.parametrize(
    "steps",
    [
        "COPY tests/test_outputs.py /app/",
        "COPY ./tests /app/tests",
        "COPY . /app",
        "COPY / /app",
        "COPY ../tests /app/",
        "copy --chown=1:1 tests/*.py /app/",
        "COPY te?ts/test_[a-o]*.py /app/",
        "COPY t[^a-d]sts /app/",
        'ADD ["tests/sim.c", "tests/test_outputs.py", "/app/"]',
        'COPY --chmod=755 ["tests", "/app/"]',
        "COPY $WHAT /app/",
        "COPY tests/sim.c \\\n\n  # a comment\n  tests/test_outputs.py /app/",
        "COPY tests /app/tests\nRUN rm -rf /app/tests",
        "FROM y AS build\nCOPY tests /t\nFROM x\nWORKDIR /app\nCOPY --from=build /t /app/t",
        "RUN --mount=type=bind,source=tests,target=/t cp /t/* /app/",
        "RUN --mount=target=/t cp -r /t /app/",
        "ONBUILD COPY tests /app/tests",
        "# escape=`\nCOPY tests/sim.c /app/",
        "COPY x--from=y tests /app/",
        "COPY te\\\nsts /app/",
        "RUN cat <<CMD\nCOPY tests /app/\nCMD",
        'COPY --chown="1 --from=b" tests /app/',
        'RUN --mount="type=bind,source=tests,target=/t" cp /t/* /app/',
    ],
)
def test_a_hidden_file_that_the_dockerfile_copies_is_refused(tmp_path: Path, steps: str) -> None:
    """A task is refused if any stage may copy a hidden file into a layer, even if a later step removes it."""
    assert "tests/test_outputs.py" in _refusal(tmp_path, {**_HIDDEN, "environment/Dockerfile": f"{_HEAD}{steps}\n"})
    ignoring_others = {"environment/.dockerignore": "*.md\n!tests\ntests/sim.c\n# tests\n"}
    assert "hidden" in _refusal(tmp_path, {**_HIDDEN, **ignoring_others, "environment/Dockerfile": f"{_HEAD}{steps}\n"})


def test_a_solution_with_the_name_of_a_test_hides_nothing(tmp_path: Path) -> None:
    """A solution file may have the same name as a test file.

    The task is still refused if its Dockerfile copies the test. Tasks that differ only in this test still get different
    hidden directories.
    """
    changes = {**_HIDDEN, "environment/Dockerfile": f"{_HEAD}COPY tests /app/tests\n"}
    twin = {"solution/test_outputs.py": "answer = 42\n"}
    assert "tests/test_outputs.py" in _refusal(tmp_path / "a", {**changes, **twin})
    one, other = (
        _harbor(tmp_path / name, {**twin, "tests/test_outputs.py": f"def test_{name}(): ...\n"}) for name in "bc"
    )
    assert not {path for path in one.trees if path.startswith("hidden/")} & {*other.trees}


@pytest.mark.parametrize(
    ("steps", "ignore"),
    [
        ("COPY tests/sim.c /app/", ""),
        ("COPY *.py /app/", ""),
        ("COPY --from=build tests /app/", ""),
        ("COPY <<tests /app/x\nwords\ntests", ""),
        ("ADD https://example.com/tests /app/", ""),
        ("RUN --mount=type=cache,target=/tests true", ""),
        ("RUN --mount=type=bind,from=build,source=tests,target=/t true", ""),
        ("# COPY tests /app/", ""),
        ("COPY . /app", "tests\n"),
        ("COPY . /app", "/tests/\n"),
        ("COPY tests /app", "**/test_*.py\n"),
        ("COPY . /app", "tests/*\n!tests/sim.c\n"),
        ("COPY . /app", "**\n!app.log\n"),
    ],
)
def test_a_hidden_file_that_merely_lies_in_the_context_does_not_refuse_the_task(
    tmp_path: Path, steps: str, ignore: str
) -> None:
    """If no step copies a hidden file, it is removed from the pack's build context. The report names it."""
    files = {**_HIDDEN, "environment/Dockerfile": f"{_HEAD}{steps}\n"}
    one = _harbor(tmp_path, {**files, **({"environment/.dockerignore": ignore} if ignore else {})})
    context = [path for path in one.trees["images/sum-the-log"] if path.startswith("context/tests/")]
    assert context == ["context/tests/sim.c"]
    assert any("tests/test_outputs.py" in note for note in one.task.report.changed)


@pytest.mark.parametrize(
    "ignore", ["tests\n!tests/test_outputs.py\n", "test[s]\n", "tests\n!te[s]ts\n", "*/x\n", "test\n"]
)
def test_an_ignore_file_that_does_not_surely_leave_it_out_does_not_help(tmp_path: Path, ignore: str) -> None:
    """A file counts as copied if no ignore pattern surely matches it, or if a `!` pattern may include it again."""
    files = {**_HIDDEN, "environment/Dockerfile": f"{_HEAD}COPY . .\n", "environment/.dockerignore": ignore}
    assert "hidden" in _refusal(tmp_path, files)


def test_a_dockerfile_that_copies_its_whole_directory_gets_it_without_the_tests(tmp_path: Path) -> None:
    """For `COPY . .`, the build context does not contain tests and solution, and the report says so."""
    one = _first(tmp_path, {"Dockerfile": "FROM x\nWORKDIR /app\nCOPY . .\n"})
    assert sorted(one.trees["images/sum-the-log"]) == [
        "Dockerfile",
        "context/Dockerfile",
        "context/app.log",
        "recipe.yaml",
    ]
    assert any("copies its whole directory" in note for note in one.task.report.changed)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"Dockerfile": "FROM x\nWORKDIR /app\nCOPY tests/ /tests/\n"}, "copies tests into the agent's image"),
        ({"Dockerfile": 'FROM x\nWORKDIR /app\nADD ["solution.sh", "/x"]\n'}, "copies solution.sh"),
        ({"Dockerfile": "FROM x\nWORKDIR /app\nCOPY --chown=1 a \\\n  ./run-tests.sh /x/\n"}, "copies run-tests.sh"),
        ({"task.yaml": "instruction: x\nparser_name: swebench\n"}, "unsupported parser 'swebench'"),
        ({"task.yaml": "descriptions:\n  - x\n"}, "must have the key 'instruction'"),
        ({"task.yaml": "instruction: &a x\nb: *a\n"}, "anchor"),
        ({"docker-compose.yaml": "services:\n  a: {}\n  b: {}\n"}, "several containers"),
        ({"docker-compose.yaml": "services: []\n"}, "several containers"),
        ({"run-tests.sh": None}, "has no run-tests.sh"),
    ],
)
def test_a_first_format_task_that_cannot_be_carried_over_is_refused(
    tmp_path: Path, changes: Changes, reason: str
) -> None:
    """A task that copies hidden files, needs several containers or is unsupported is refused with the reason."""
    assert reason in _refusal(tmp_path, changes, first=True)


def test_limits_of_a_compose_file_are_carried_and_the_rest_is_named(tmp_path: Path) -> None:
    """Limits of memory and CPUs are kept as metadata, and other keys of the service are reported as lost."""
    compose = "services:\n  client:\n    mem_limit: 512m\n    cpus: 2\n    privileged: true\n"
    one = _first(tmp_path, {"docker-compose.yaml": compose})
    assert one.row.task["metadata"]["limits"] == {"memory_gib": 0.5, "cpus": 2.0}
    assert "privileged of docker-compose.yaml" in one.task.report.lost


@pytest.mark.parametrize("place", ["tests/link", "environment/link", "link"])
def test_a_link_is_refused(tmp_path: Path, place: str) -> None:
    """A task whose directory contains a symbolic link is refused."""
    directory = lay_out(tmp_path / "sum-the-log", HARBOR)
    (directory / place).symlink_to("/etc/passwd")
    with pytest.raises(ConfigError, match="link: is a link"):
        read_harbor(directory)


def test_the_digest_is_of_every_file(tmp_path: Path) -> None:
    """The digest of a row changes if the content or the mode of a file in the task's directory changes."""
    one = _harbor(tmp_path / "a").row.digest
    assert one == _harbor(tmp_path / "b").row.digest
    assert one != _harbor(tmp_path / "c", {"tests/expected.json": '{"errors": 4}\n'}).row.digest
    directory = lay_out(tmp_path / "d" / "sum-the-log", HARBOR)
    (directory / "environment" / "app.log").chmod(0o755)
    assert one != imported(read_harbor(directory), CHOICES).row.digest
