"""Which commands only start a test runner, and which files of a repository belong to the runner."""

from __future__ import annotations

import pytest

from securebench.runner_commands import RunnerCommand, read_command, words

ARE = {
    "pytest -q tests": RunnerCommand("pytest", "pytest", ("-q", "tests"), interpreter=False),
    "py.test": RunnerCommand("pytest", "py.test", (), interpreter=False),
    ("pytest", "a;b"): RunnerCommand("pytest", "pytest", ("a;b",), interpreter=False),
    "/opt/env/bin/python -m pytest x": RunnerCommand("pytest", "/opt/env/bin/python", ("x",)),
    "python -B -Werror -u -W ignore::x -m pytest -W error": RunnerCommand(
        "pytest", "python", ("-W", "error"), flags=("-B", "-Werror", "-u", "-W", "ignore::x")
    ),
    "python -m unittest": RunnerCommand("unittest", "python", ()),
    "python -m unittest tests.test_a.Case Tests.test_b tests/Test.py": RunnerCommand(
        "unittest", "python", ("tests.test_a.Case", "Tests.test_b", "tests/Test.py")
    ),
    "python3.9 -W error -m unittest discover -s tests": RunnerCommand(
        "unittest", "python3.9", ("discover", "-s", "tests"), flags=("-W", "error")
    ),
    "./tests/runtests.py --verbosity 2 --settings=test_sqlite app.tests": RunnerCommand(
        "django", "python3", ("--verbosity", "2", "--settings=test_sqlite", "app.tests"), script="tests/runtests.py"
    ),
    "python manage.py test --settings project.settings.Base.testing app.tests.case.test_x": RunnerCommand(
        "django",
        "python",
        ("test", "--settings", "project.settings.Base.testing", "app.tests.case.test_x"),
        script="manage.py",
    ),
    "python -m unittest discover Tests.Unit.fast": RunnerCommand("unittest", "python", ("discover", "Tests.Unit.fast")),
    "python manage.py test app": RunnerCommand("django", "python", ("test", "app"), script="manage.py"),
    ("python", "-Wignore", "bin/test", "-C", "--verbose", "sympy/x.py"): RunnerCommand(
        "sympy", "python", ("-C", "--verbose", "sympy/x.py"), flags=("-Wignore",), script="bin/test"
    ),
    "bin/test sympy": RunnerCommand("sympy", "python3", ("sympy",), script="bin/test"),
}
ARE_NOT = [
    "make test",
    "pytest; true",
    "pytest || true",
    "pytest $(cat x)",
    "pytest > log",
    "pytest *.py",
    "pytest 'open",
    "PYTHONPATH=. pytest",
    "./pytest",
    "python -c pytest",
    "python2 -m pytest",
    "pytest\ntrue",
    "sh -c pytest",
    "python -m unittest || true",
    "cd x && python -m unittest",
    "X=1 python -m unittest",
    "python -m unittest -k name",
    "python -m unittest tests.test_a.Case tests.test_b.Case.test_x",
    "python -c unittest",
    "python -O -m unittest",
    "python -O -m pytest",
    "python -E -m pytest",
    "python -X dev -m pytest",
    "python -B -c pytest",
    "python -W -m pytest",
    "python2 -m unittest",
    ".venv/bin/python -m unittest",
    "bin/pytest",
    "python manage.py migrate",
    "python /opt/manage.py test",
    "python ../tests/runtests.py",
    "python tests/runtests.py -k name",
    "python tests/runtests.py app.tests.Case.test_x",
    "python tests/runtests.py --settings test_sqlite app.tests.Case.test_x",
    "python tests/runtests.py --help",
    "bin/test --split 1/2",
    "bin/test -k name",
    "python",
    "python -m",
    "python -W error",
    "python run.py",
    "",
]


@pytest.mark.parametrize(("command", "expected"), ARE.items())
def test_a_runner_alone_is_recognised(command: str | tuple[str, ...], expected: RunnerCommand) -> None:
    """A command that only starts a known runner, as a module, script or program, is recognised."""
    assert read_command(command) == expected


@pytest.mark.parametrize("command", ARE_NOT)
def test_everything_else_is_not(command: str) -> None:
    """Other commands are not recognised.

    Examples are commands with shell syntax, variables, unknown programs, options that select tests, names of single
    tests, or options of Python that change more than warnings, bytecode files and buffering.
    """
    assert read_command(command) is None


@pytest.mark.parametrize(
    ("command", "path"),
    [
        ("manage.py test", "manage.py"),
        ("tests/runtests.py", "tests/runtests.py"),
        ("tests/runtests.py", "tests/test_sqlite.py"),
        ("tests/runtests.py", "django/test/runner.py"),
        ("bin/test", "bin/test"),
        ("bin/test", "sympy/testing/runtests.py"),
        ("bin/test", "sympy/testing/pytest.py"),
        ("bin/test", "sympy/utilities/pytest.py"),
    ],
)
def test_a_runner_owns_what_decides_outcomes(command: str, path: str) -> None:
    """A runner owns its script and the modules that collect tests, run tests or provide assertions."""
    runner = read_command(command)
    assert runner is not None
    assert runner.owns(path)
    assert not runner.owns("django/db/models/query.py")
    assert not runner.owns("sympy/core/add.py")


def test_labels_are_neither_options_nor_their_values() -> None:
    """A label is an argument that names tests, such as a module, a class or a path.

    Options, their values, Django's ``test`` and the directory for unittest's ``discover`` are not labels.
    """
    for command, labels in (
        ("manage.py test -v --settings a.B.c --verbosity 2 app.tests", ("app.tests",)),
        ("python -m unittest -v tests.test_a tests/test_b.py", ("tests.test_a", "tests/test_b.py")),
        ("python -m unittest discover tests", ()),
    ):
        runner = read_command(command)
        assert runner is not None
        assert runner.labels == labels


def test_pytest_and_unittest_are_not_the_repositorys() -> None:
    """The runners pytest and unittest own no file of a repository, because they are installed in the image."""
    for command in ("pytest", "python -m unittest"):
        runner = read_command(command)
        assert runner is not None
        assert not runner.owns("sympy/testing/runtests.py")


def test_words_are_those_of_a_text_that_no_shell_changes() -> None:
    """A sequence of words is returned as a list. A string is split at spaces and quotes as by a shell.

    If a shell would do more than split the string, or a quote is not closed, the result is empty.
    """
    assert words(("a", "$(b)")) == ["a", "$(b)"]
    assert words("a 'b c'") == ["a", "b c"]
    assert words("a $(b)") == []
    assert words("a 'b") == []
