"""Options of pytest: some are refused because no test would be reported, others must not change a verdict."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from patches.trees import MemoryTree
from securebench.patches.model import FileVersion
from securebench.verifiers.repo_patch.evidence.adapters import recognise
from securebench.verifiers.repo_patch.pytest_options import added_options, refused_option
from verifiers.repo_patch.evidence.here import Here

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        ("tests --collect-only", "--collect-only"),
        ("tests --co -q", "--co"),
        ("--setup-plan", "--setup-plan"),
        ("-p no:securebench_report tests", "-p no:securebench_report"),
        ("-pno:python", "-p no:python"),
        ("-p no:cacheprovider -p xdist -n 4 --forked --noconftest --import-mode=importlib -c other.ini tests", ""),
        ("-k version --maxfail=1 -p no:randomly", ""),
    ],
)
def test_options_without_tests_are_refused(words: str, refused: str) -> None:
    """An option is refused if it prevents tests from running or from being reported; other options are accepted."""
    assert refused_option(words.split()) == refused


CONFIGURATION = {
    "pytest.ini": "[pytest]\naddopts = -q\n  --collect-only\n",
    "tox.ini": "[pytest]\naddopts = -q --collect-only\n",
    "setup.cfg": "[tool:pytest]\naddopts = -q --collect-only\n",
    "pyproject.toml": "[tool.pytest.ini_options]\naddopts = '-q --collect-only'\n",
    "pytest.toml": "[pytest]\naddopts = ['-q', '--collect-only']\n",
}


@pytest.mark.parametrize("name", CONFIGURATION)
def test_options_of_a_configuration_file_are_read(name: str) -> None:
    """``addopts`` is read from the file that pytest would use, unless the command overrides it."""
    files = {f"sub/{name}": CONFIGURATION[name], "other.cfg": "[tool:pytest]\naddopts = -v\n", "setup.py": ""}
    tree = MemoryTree({path.encode(): FileVersion(text.encode()) for path, text in files.items()})
    assert added_options(["tests"], tree, ["sub", "."]) == (f"sub/{name}", ["-q", "--collect-only"])
    assert added_options(["-o", "addopts="], tree, ["sub", "."]) == ("", [])
    assert added_options(["-c", "other.cfg"], tree, ["sub", "."]) == ("other.cfg", ["-v"])
    assert added_options(["tests"], tree, ["."]) == ("", [])


@pytest.mark.parametrize(
    "text", ["[pytest", "\0", "addopts = 3", "[pytest]\naddopts = 'open\n", "[tool]\npytest = 3\n"]
)
@pytest.mark.parametrize("name", CONFIGURATION)
def test_a_file_that_cannot_be_read_adds_nothing(name: str, text: str) -> None:
    """An invalid configuration file adds no options: pytest reports the error when it runs."""
    tree = MemoryTree({name.encode(): FileVersion(text.encode())})
    assert added_options(["tests"], tree, ["."])[1] == []


@pytest.mark.parametrize(
    "words", ["-c ci/other.ini tests", "--config-file=ci/other.ini", "-cci/other.ini", "--config-file ./ci/other.ini"]
)
def test_a_configuration_file_that_is_named_is_the_runners(words: str) -> None:
    """A configuration file that the command names belongs to the runner, so that no candidate may change it."""
    adapter = recognise("python -m pytest " + words)
    assert adapter is not None
    assert adapter.owns("ci/other.ini")
    assert not adapter.owns("setup.py")
    plain = recognise("pytest tests")
    assert plain is not None
    assert not plain.owns(".")


FORKED = """\
import pytest


class Forked:
    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item):
        raise AssertionError("another process would report this test")


def pytest_addoption(parser, pluginmanager):
    parser.addoption("--forked", action="store_true")
    pluginmanager.register(Forked(), "pytest_forked")
"""


def test_tests_that_would_be_forked_run_here(tmp_path: Path) -> None:
    """An honest change passes with ``--forked`` and ``--stepwise``, which are ignored.

    The tests run in pytest's own process, and do not stop at the first failure.
    """
    files = {
        "conftest.py": FORKED,
        "calc.py": "def add(a, b):\n    return a + b\n",
        "tests/test_new.py": "from calc import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n",
        "tests/test_old.py": "from calc import add\n\n\ndef test_more():\n    assert add(5, 2) == 7\n",
    }
    command = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--forked", "tests")
    verdict = Here(files, command).judge(tmp_path / "r")
    assert verdict.reason is None, (verdict, verdict.output.decode()[-2000:])
    stepwise = (sys.executable, "-m", "pytest", "--stepwise", "tests")
    expected = ("tests/test_new.py::test_add", "tests/test_old.py::test_more")
    verdict = Here({**files, "conftest.py": ""}, stepwise, expected).judge(tmp_path / "s")
    assert verdict.reason is None, (verdict, verdict.output.decode()[-2000:])
