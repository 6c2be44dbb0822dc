"""Verifier scripts: a script is recognised only if SecureBench's runner can replace all of it. Others are refused."""

from __future__ import annotations

import pytest

from importers.terminal_tasks import UV_SCRIPT, UVX_SCRIPT
from securebench.importers.terminal.script import UnreadableScriptError, commands, needed_system_packages, read_script


def test_a_script_that_downloads_its_runner_and_writes_a_reward_is_recognised() -> None:
    """In a script of Terminal-Bench 2, the tests, pytest's own environment and the reward file are recognised."""
    found = read_script(UVX_SCRIPT)
    assert found.tests == ["test_outputs.py"]
    assert found.packages == {}
    assert (found.pytest_version, found.own_environment, found.writes_reward) == ("8.4.1", True, True)
    assert found.system_packages == ["curl"]


def test_a_script_of_the_first_format_is_recognised() -> None:
    """In a script of Terminal-Bench 1, a uv project and a variable with the tests' directory are recognised."""
    found = read_script(UV_SCRIPT)
    assert found.tests == ["test_outputs.py"]
    assert (found.pytest_version, found.own_environment, found.writes_reward) == ("8.4.1", True, False)


@pytest.mark.parametrize(
    ("line", "tests", "packages", "own"),
    [
        ("pip install pytest requests==2.31.0\npytest /tests/test_outputs.py", ["test_outputs.py"],
         {"requests": "2.31.0"}, False),
        ("python3 -m pytest /tests", ["."], {}, False),
        ("uvx --with numpy==2.1.0 --with=pandas pytest -rA ${TEST_DIR}/a/test_b.py::test_c", ["a/test_b.py::test_c"],
         {"numpy": "2.1.0", "pandas": ""}, True),
        ("uv run --no-project -w psutil pytest /tests/test_a.py /tests/test_b.py -v", ["test_a.py", "test_b.py"],
         {"psutil": ""}, True),
        ("uv venv .tbench\nuv pip install pytest==8.0 \\\n  x[y]==1\nuv run pytest /tests/t.py",
         ["t.py"], {"x": "1"}, True),
        ("uvx pytest@8.3.0 /tests/test_outputs.py", ["test_outputs.py"], {}, True),
    ],
)  # fmt: skip
def test_other_ways_to_run_pytest_are_recognised(
    line: str, tests: list[str], packages: dict[str, str], own: bool
) -> None:
    """Scripts with pip, uv or uvx are recognised, and the packages that they install besides pytest are returned."""
    found = read_script(line)
    assert (found.tests, found.packages, found.own_environment) == (tests, packages, own)


@pytest.mark.parametrize(
    "line",
    [
        "make test",
        "bash /tests/check.sh",
        "python3 /tests/check.py",
        "python3 -c 'print(1)'",
        "pytest /app/test_outputs.py",
        "pytest /tests/../app/test_x.py",
        "pytest /tests/$NAME",
        "pytest test_outputs.py",
        "pytest /tests/test_outputs.py -k fast",
        "pytest /tests/test_outputs.py -p plugin",
        "pytest /tests/test_outputs.py --override-ini=x=y",
        "pytest /tests/test_outputs.py || true",
        "pytest /tests/test_outputs.py | tee log",
        "pytest /tests/test_outputs.py > /logs/out",
        "pytest /tests/a.py\npytest /tests/b.py",
        "if [ -f x ]; then\npytest /tests/a.py\nfi",
        "for f in a b; do pytest /tests/a.py; done",
        "curl https://example.org/install.sh | sh\npytest /tests/a.py",
        "curl -O https://example.org/data\npytest /tests/a.py",
        "cp /app/x /y\npytest /tests/a.py",
        "export FOO=bar\npytest /tests/a.py",
        "cd /app/sub\npytest /tests/a.py",
        "service nginx start\npytest /tests/a.py",
        "pytest /tests/$(ls)",
        "pytest `ls`",
        "cat <<EOF\nEOF\npytest /tests/a.py",
        "echo 1 > /etc/passwd\npytest /tests/a.py",
        "pip install ./local\npytest /tests/a.py",
        "pip install git+https://example.org/x\npytest /tests/a.py",
        "apt-get install -y $PKG\npytest /tests/a.py",
        "rm -rf /app\npytest /tests/a.py",
        "pytest 'unclosed",
        "uvx ruff /tests",
        "pytest -x",
        "",
        "echo done",
    ],
)
def test_anything_that_is_not_known_is_refused(line: str) -> None:
    """A script is refused if it has even one unknown or unsupported command, or if it does not run pytest.

    The error has a line number.
    """
    with pytest.raises(UnreadableScriptError, match=r"line \d"):
        read_script(line)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("pytest /tests\necho `ls`", "line 2: unsupported embedded command (`...`): echo `ls`"),
        ("echo $(ls)", "line 1: unsupported embedded command or calculation ($(...)): echo $(ls)"),
        ("cat <<EOF\nEOF", "line 1: unsupported here-document (<<): cat <<EOF"),
        ("echo a\nif [ $? -eq 0 ]; then\npytest /tests", "line 3: unsupported command in an 'if': pytest /tests"),
        ("pytest /tests\nif [ $? -eq 0 ]; then\necho a", "line 2: 'if' without 'fi'"),
        ("pytest /tests\nfi\nif [ $? -eq 0 ]; then\necho a", "line 2: 'fi' without 'if'"),
        ("echo done", "line 1: no pytest command found"),
        ("UV_X=1", "line 1: unsupported assignment: UV_X=1"),
        ("make test", "line 1: unknown command: make test"),
        ("pytest /tests -k fast", "line 1: unsupported use of pytest: pytest /tests -k fast"),
        ("pytest /tests\npython3 -m pytest /tests", "line 2: a second run of pytest: python3 -m pytest /tests"),
    ],
)
def test_each_fault_has_a_name(text: str, fault: str) -> None:
    """The reason for a refusal says what is wrong with the line, and two different faults have different reasons."""
    with pytest.raises(UnreadableScriptError) as caught:
        read_script(text)
    assert str(caught.value) == fault


def test_a_refusal_names_the_line() -> None:
    """The error contains the command and its line number, in which continued lines are counted separately."""
    with pytest.raises(UnreadableScriptError, match=r"line 4: .*start-database --now"):
        read_script("#!/bin/sh\necho \\\n  a\nstart-database --now\npytest /tests\n")


def test_system_packages_are_needed_unless_they_only_download() -> None:
    """Download tools that a script installs are not needed, unless the tests name them."""
    found = read_script("apt-get install -y curl wget jq\npytest /tests/a.py")
    assert needed_system_packages(found, "subprocess.run(['wget', url])") == ["wget", "jq"]


def test_commands_are_told_apart() -> None:
    """An unquoted separator ends a command. Comments are removed. A pipeline is one command."""
    text = "a 'b; c' # d\ne && f; g | h\n"
    assert [each.words for each in commands(text)] == [("a", "b; c"), ("e",), ("f",), ("g", "|", "h")]
