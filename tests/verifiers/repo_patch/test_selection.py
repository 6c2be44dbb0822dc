"""Where pytest's configuration is searched, and whether it changes which names count as tests."""

from __future__ import annotations

import pytest

from patches.trees import MemoryTree
from securebench.patches.model import FileVersion
from securebench.patches.policy import PathPolicy
from securebench.verifiers.repo_patch.evidence.adapters import recognise
from securebench.verifiers.repo_patch.request import RepoPatchRequest
from securebench.verifiers.repo_patch.selection import configuration_directories, has_usual_names, owns

OTHER = FileVersion(b"[pytest]\npython_functions = check_*\n")


def request(workdir: str = "/srv/project/libs/one", command: str = "pytest tests") -> RepoPatchRequest:
    """Return the parameters of a task in the repository ``/srv/project``."""
    return RepoPatchRequest(
        image="image:1",
        repository="/srv/project",
        workdir=workdir,
        base_commit="0" * 40,
        command=command,
        timeout_seconds=60.0,
        setup_patch=b"",
        test_patch=b"",
        policy=PathPolicy(),
        fail_to_pass=(),
        pass_to_pass=(),
    )


def test_configuration_is_searched_from_the_working_directory_upwards() -> None:
    """The working directory is searched first, then its parents up to the repository."""
    assert configuration_directories(request()) == ["libs/one", "libs", "."]
    assert configuration_directories(request("/srv/project")) == ["."]


@pytest.mark.parametrize(
    ("path", "command", "expected"),
    [
        ("pytest.ini", "pytest tests", False),
        ("libs/setup.cfg", "pytest tests", False),
        ("libs/one/pyproject.toml", "pytest tests", False),
        ("libs/one/ci/own.ini", "pytest -c ci/own.ini tests", False),
        ("libs/ci/own.ini", "pytest -c ../ci/own.ini tests", False),
        ("libs/one/README.md", "pytest -o python_classes=Check tests", False),
        ("libs/one/ci/own.ini", "pytest tests", True),
        ("libs/two/pytest.ini", "pytest tests", True),
        ("libs/one/README.md", "pytest tests", True),
    ],
)
def test_names_are_usual_unless_the_command_or_its_configuration_changes_them(
    path: str, command: str, expected: bool
) -> None:
    """Only the command or pytest's configuration changes which names count as tests.

    The configuration is in the working directory, in a directory above it, or in a file that the command names.
    """
    tree = MemoryTree({path.encode(): OTHER})
    assert has_usual_names(request(command=command), tree) is expected


@pytest.mark.parametrize(
    ("named", "path"),
    [
        ("ci/own.ini", "libs/one/ci/own.ini"),
        ("./ci/../own.ini", "libs/one/own.ini"),
        ("../own.ini", "libs/own.ini"),
        ("../../own.ini", "own.ini"),
        ("/srv/project/own.ini", "own.ini"),
        ("/srv/project/libs/one/own.ini", "libs/one/own.ini"),
    ],
)
def test_the_configuration_file_that_a_command_names_belongs_to_its_runner(named: str, path: str) -> None:
    """A configuration file that the command names belongs to the runner, wherever it is in the repository."""
    task = request(command=f"pytest -c {named} tests")
    adapter = recognise(task.command)
    assert adapter is not None
    assert owns(adapter, task, path.encode())
    assert not owns(adapter, task, b"setup.py")
    assert not owns(adapter, task, b"libs/two/own.ini")
