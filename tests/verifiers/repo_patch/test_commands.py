"""How test commands are recognised and started, and which environment they get."""

from __future__ import annotations

import pytest

from securebench.sandboxes.base import BASE_ENVIRONMENT
from securebench.verifiers.repo_patch.commands import started
from securebench.verifiers.repo_patch.environment import check_environment
from securebench.verifiers.repo_patch.evidence.adapters import PytestAdapter, recognise

ARE = {
    "pytest -q tests": PytestAdapter("pytest", ("-q", "tests"), module=False),
    "py.test": PytestAdapter("py.test", (), module=False),
    "pytest 'tests/x.py::test_a[1 2]'": PytestAdapter("pytest", ("tests/x.py::test_a[1 2]",), module=False),
    ("pytest", "a;b"): PytestAdapter("pytest", ("a;b",), module=False),
    ("python3.9", "-m", "pytest", "x"): PytestAdapter("python3.9", ("x",), module=True),
    "/opt/env/bin/python -m pytest x": PytestAdapter("/opt/env/bin/python", ("x",), module=True),
    "python -B -W error -m pytest x": PytestAdapter("python", ("x",), module=True, flags=("-B", "-W", "error")),
    "/opt/env/bin/pytest": PytestAdapter("/opt/env/bin/pytest", (), module=False),
}


@pytest.mark.parametrize(("command", "expected"), ARE.items())
def test_what_is_plainly_pytest_is_known_as_such(command: str | tuple[str, ...], expected: PytestAdapter) -> None:
    """A command is pytest's if it starts the program or the module pytest, with words that no shell would change."""
    assert recognise(command) == expected


def test_what_a_command_selects() -> None:
    """A command selects the files and directories that it names. Test ids are cut off; option values are ignored."""
    command = recognise(("pytest", "-k", "tests", "-p", "no:x", "--tb=no", "a/t.py::X::y[1]", "--rootdir", "/", "b"))
    assert command is not None
    assert command.selected == ("a/t.py", "b")


def test_how_commands_are_started() -> None:
    """A shell interprets a command given as a string, but not the words of an array."""
    assert started("a && b") == ("/bin/sh", "-c", "a && b")
    assert started(("a", "$(b)"))[3:] == ("sh", "a", "$(b)")


def test_pytest_is_loaded_before_the_repository_is_on_its_path() -> None:
    """``python -m pytest`` is started by SecureBench's launcher, and ``PYTHONPATH`` is not set."""
    command = recognise("python3 -m pytest x")
    assert command is not None
    assert command.argv[-3:] == ("python3", "/opt/securebench/tests/securebench_launch.py", "x")
    assert "PYTHONPATH" not in command.environment


def test_options_of_python_stay_before_the_launcher() -> None:
    """Python gets the options of the task's command before the launcher's path."""
    command = recognise("python3 -u -W error -m pytest -q x")
    assert command is not None
    launcher = "/opt/securebench/tests/securebench_launch.py"
    assert command.argv[-7:] == ("python3", "-u", "-W", "error", launcher, "-q", "x")


def test_of_an_images_environment_little_holds() -> None:
    """From the image's environment, a test command gets only paths of installed programs, such as ``PATH``.

    Paths that a candidate can write to are left out, and so are variables that make a program load code.
    """
    loaders = (
        "LD_PRELOAD LD_LIBRARY_PATH PYTHONPATH PYTHONSTARTUP PYTHONHOME PYTEST_ADDOPTS PYTEST_PLUGINS BASH_ENV ENV"
    )
    others = "NODE_OPTIONS PERL5LIB RUBYOPT JAVA_TOOL_OPTIONS GIT_DIR GIT_CONFIG_GLOBAL GOFLAGS RUSTC_WRAPPER SHELLOPTS"
    dangerous = f"{loaders} {others}".split()
    image = dict.fromkeys(dangerous, "/evil") | {
        "PATH": "/repo/bin::.:bin:/opt/conda/bin:/tmp/x:/workspace/bin:/opt/../repo/bin:/usr/bin",
        "CONDA_PREFIX": "/opt/conda",
        "VIRTUAL_ENV": "/repo/.venv",
        "HOME": "/repo",
    }
    assert check_environment(image, "/repo") == {
        **BASE_ENVIRONMENT,
        "PATH": "/opt/conda/bin:/usr/bin",
        "CONDA_PREFIX": "/opt/conda",
    }


def test_an_image_without_a_path_gets_the_usual_one() -> None:
    """If a candidate can write to every directory of the image's ``PATH``, the default ``PATH`` is used."""
    assert check_environment({"PATH": "/repo/bin"}, "/repo")["PATH"] == BASE_ENVIRONMENT["PATH"]


@pytest.mark.parametrize(
    ("command", "narrows"),
    [
        ("pytest", False),
        ("pytest -q tests -p no:cacheprovider", False),
        ("pytest tests -k one", True),
        ("pytest -mslow", True),
        ("pytest tests/t.py::test_a", True),
        ("pytest --deselect tests/t.py::test_b tests", True),
        ("pytest --lf", True),
    ],
)
def test_a_command_that_selects_single_tests_is_known(command: str, narrows: bool) -> None:
    """Options and ids that select single tests are recognised: with them, the reporter must keep the controls."""
    adapter = recognise(command)
    assert adapter is not None
    assert adapter.narrows is narrows


METHOD_FILES = {"tests/__init__.py", "tests/test_a.py", "tests/sub/test_b.py", "django_tests/app/tests.py"}


@pytest.mark.parametrize(
    ("command", "is_method"),
    [
        ("python -m unittest tests.test_a.case.test_x", True),
        ("python -m unittest tests.test_a tests.test_a.case.test_x", True),
        ("python -m unittest tests.case.test_x", True),
        ("django_tests/runtests.py app.tests.case.test_x", True),
        ("python manage.py test django_tests.app.tests.case.test_x", True),
        ("python -m unittest tests.test_a.case", False),
        ("python -m unittest tests.sub.test_b tests/test_a.py", False),
        ("python -m unittest elsewhere.test_a.case.test_x", False),
        ("python -m unittest discover tests.test_a.case.test_x", False),
        ("python manage.py test --settings tests.test_a.case.test_x tests.test_a", False),
        ("django_tests/runtests.py app.tests", False),
        ("pytest tests.test_a.case.test_x", False),
        ("bin/test tests.test_a.case.test_x", False),
    ],
)
def test_the_files_show_which_label_is_a_method(command: str, is_method: bool) -> None:
    """A test label means a method if two names follow its module, whatever the name of the class.

    This holds for unittest and for scripts that are built on it, but not for ``discover``.
    """
    adapter = recognise(command)
    assert adapter is not None
    assert adapter.selects_method(METHOD_FILES.__contains__) is is_method
