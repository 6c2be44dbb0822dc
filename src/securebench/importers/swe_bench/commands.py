"""The test command of each SWE-bench repository, and the test files that a test patch selects."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_PYTEST: Final = ("-m", "pytest", "-rA")


@dataclass(frozen=True, slots=True)
class Runner:
    """A repository's test command: Python's arguments, then an argument for each test file.

    ``label`` turns the path of a file into its argument. ``note`` describes a difference from how the authors
    run the tests.
    """

    arguments: tuple[str, ...]
    label: Callable[[str], str] = str
    is_pytest: bool = True
    is_unittest: bool = False
    note: str = ""
    unfit: Mapping[str, str] = field(default_factory=dict)
    """Ids of tests that the authors expect to pass but that a task cannot require, each with the reason."""


def _django_label(path: str) -> str:
    return path.removeprefix("tests/").removesuffix(".py").replace("/", ".")


_REQUESTS_UNFIT: Final = {
    **{
        f"tests/test_requests.py::TestTimeout::test_{kind}[timeout{number}]": "it needs a network"
        for kind in ("connect_timeout", "total_timeout_connect")
        for number in range(2)
    },
    **{
        f"tests/test_utils.py::TestExtractZippedPaths::test_unzipped_paths_unchanged[/{name}]": "no runner reports it"
        for name in ("test_utils.py", "__init__.py", "location")
    },
}

RUNNERS: Final[Mapping[str, Runner]] = MappingProxyType(
    {
        "astropy/astropy": Runner(_PYTEST),
        "django/django": Runner(
            ("./tests/runtests.py", "--verbosity", "2", "--settings=test_sqlite", "--parallel", "1"),
            _django_label,
            is_pytest=False,
            is_unittest=True,
        ),
        "matplotlib/matplotlib": Runner(_PYTEST),
        "mwaskom/seaborn": Runner((*_PYTEST, "--no-header")),
        "pallets/flask": Runner(_PYTEST),
        "psf/requests": Runner(
            _PYTEST,
            unfit=_REQUESTS_UNFIT,
        ),
        "pydata/xarray": Runner(_PYTEST),
        "pylint-dev/pylint": Runner(_PYTEST),
        "pytest-dev/pytest": Runner(_PYTEST),
        "scikit-learn/scikit-learn": Runner(_PYTEST),
        "sphinx-doc/sphinx": Runner(_PYTEST, note="pytest runs directly: the authors run it through tox"),
        "sympy/sympy": Runner(
            ("-W", "ignore::UserWarning", "-W", "ignore::SyntaxWarning", "bin/test", "-C", "--verbose"),
            is_pytest=False,
        ),
    }
)
"""The runners of the twelve repositories of SWE-bench."""

_SECTION = re.compile(r"^diff --git ", re.MULTILINE)
_HEADER_PATH = re.compile(r'^(?:---|\+\+\+|rename from|rename to) "?(?:[ab]/)?(.*?)"?(?:\t.*)?$', re.MULTILINE)
_REMOVED = re.compile(r"^\+\+\+ /dev/null$", re.MULTILINE)
_NO_TESTS = frozenset({"__init__.py", "conftest.py"})


def changed_paths(patch: str, *, removed: bool = True) -> tuple[str, ...]:
    """Return the old and new paths in a git patch, each once.

    Files that the patch removes are left out if ``removed`` is ``False``.
    """
    headers = [section.partition("\n@@")[0] for section in _SECTION.split(patch)[1:]]
    kept = [header for header in headers if removed or not _REMOVED.search(header)]
    paths = [path for header in kept for path in _HEADER_PATH.findall(header) if path != "/dev/null"]
    return tuple(dict.fromkeys(paths))


def test_files(test_patch: str, tests: Sequence[str]) -> tuple[str, ...]:
    """Return the test files to run: those in the test patch or, if it has none, those named in the ids ``tests``."""
    paths = [path for path in changed_paths(test_patch, removed=False) if _is_test(path)]
    return tuple(paths or dict.fromkeys(test.partition("::")[0] for test in tests if "::" in test))


def command(runner: Runner, python: str, files: Sequence[str]) -> list[str]:
    """Return the command as an argument vector, so that no shell interprets file names."""
    return [python, *runner.arguments, *(runner.label(path) for path in files)]


def _is_test(path: str) -> bool:
    name = PurePosixPath(path).name
    return name.endswith(".py") and name not in _NO_TESTS
