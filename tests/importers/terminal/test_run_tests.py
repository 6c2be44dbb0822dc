"""The program that runs a task's tests: its exit code is 0 only where each test is known to have passed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from securebench.importers.terminal.guest import run_tests

PROGRAM = Path(run_tests.__file__)
SITE = str(Path(pytest.__file__).resolve().parent.parent)
PASSING = "def test_one():\n    assert True\n\n\nclass TestMore:\n    def test_two(self):\n        assert True\n"
FORGED = """
import json, os
outcomes = {"test_one": "passed", "TestMore::test_two": "passed"}
for descriptor in range(3, 20):
    try:
        os.write(descriptor, json.dumps({"word": "", "code": 0, "outcomes": outcomes}).encode())
    except OSError:
        pass
os._exit(0)
"""
NAMES = ["test_one", "TestMore::test_two"]


def _lay_out(root: Path, tests: str, **changes: Any) -> list[str]:
    """Lay a task's tests out as a sandbox has them, and return the command that runs them in ``work``."""
    place = root / "inputs"
    (place / "tests").mkdir(parents=True)
    (place / "tests" / "test_outputs.py").write_text(tests)
    (place / "empty.ini").write_text("[pytest]\n")
    plan = {"site": SITE, "root": "tests", "tests": ["tests/test_outputs.py"], "expected": NAMES, **changes}
    (place / "plan.json").write_text(json.dumps(plan))
    (place / "run_tests.py").write_bytes(PROGRAM.read_bytes())
    (root / "work").mkdir(exist_ok=True)
    return [sys.executable, "-I", "-S", str(place / "run_tests.py")]


def _run(root: Path, tests: str, *, environment: dict[str, str] | None = None, **changes: Any) -> tuple[int, str]:
    """Run a task's tests, and return the exit code and the output."""
    done = subprocess.run(
        _lay_out(root, tests, **changes),
        cwd=root / "work",
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": str(root),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # a task's packages lack the plugins here, which load slowly
            **(environment or {}),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stderr + done.stdout


def test_tests_that_pass_are_a_pass(tmp_path: Path) -> None:
    """All expected tests are reported and pass: exit code 0."""
    code, output = _run(tmp_path, PASSING)
    assert code == 0, output
    assert "2 tests passed" in output


@pytest.mark.parametrize(
    ("name", "tests"),
    [
        ("a test fails", PASSING.replace("assert True", "assert False", 1)),
        ("a test is gone", "def test_one():\n    pass\n"),
        ("no test", "x = 1\n"),
        ("no Python", "def ("),
        ("all are skipped", "import pytest\npytest.skip('no', allow_module_level=True)\n"),
        ("the process ends with 0 while a test runs", PASSING.replace("assert True", "__import__('os')._exit(0)", 1)),
        ("the process ends with 0 on import", "import os\nos._exit(0)\n"),
        ("the process replaces itself", "import os\nos.execv('/bin/true', ['true'])\n" + PASSING),
        ("pytest is told to end well", "import pytest\npytest.exit('done', returncode=0)\n" + PASSING),
        ("a fixture fails", "import pytest\n@pytest.fixture(autouse=True)\ndef f():\n    assert 0\n" + PASSING),
        ("teardown fails", "import pytest\n@pytest.fixture(autouse=True)\ndef f():\n    yield\n    1 / 0\n" + PASSING),
        ("a report of another", FORGED),
    ],
)  # fmt: skip
def test_anything_else_is_a_failure(tmp_path: Path, name: str, tests: str) -> None:
    """Whatever keeps a test from being known to have passed, the exit code is not 0."""
    code, output = _run(tmp_path, tests)
    assert code == 1, (name, output)


def test_each_parameter_counts_and_one_that_fails_is_a_failure(tmp_path: Path) -> None:
    """A test with parameters is there by its name, and fails as a whole with one of them."""
    text = "import pytest\n@pytest.mark.parametrize('n', [1, 2])\ndef test_one(n):\n    assert n < {0}\n"
    assert _run(tmp_path / "a", text.format(3), expected=["test_one"])[0] == 0
    assert _run(tmp_path / "b", text.format(2), expected=["test_one"])[0] == 1


def test_what_lies_in_the_working_directory_configures_nothing(tmp_path: Path) -> None:
    """A02: the candidate's conftest.py, ini file, modules and environment change nothing of the run."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "conftest.py").write_text("import os\nos._exit(0)\n")
    (work / "pytest.ini").write_text("[pytest]\naddopts = --deselect=x -p nothing\n")
    (work / "pytest.py").write_text("import os\nos._exit(0)\n")
    (work / "json.py").write_text("import os\nos._exit(0)\n")
    failing = PASSING.replace("assert True", "assert False", 1)
    hostile = {"PYTEST_ADDOPTS": "--collect-only", "PYTEST_PLUGINS": "nothing", "PYTHONPATH": str(work)}
    code, output = _run(tmp_path, failing, environment=hostile)
    assert code == 1, output
    assert "1 of 2 tests passed" in output


def test_a_process_of_the_same_user_cannot_reach_it(tmp_path: Path) -> None:
    """A program that a test starts may open neither the memory nor the descriptors of the processes above it."""
    probe = (
        "import os, sys\n"
        "found = []\n"
        "for pid in map(int, sys.argv[1:]):\n"
        "    for name in ('mem', 'environ', *(f'fd/{number}' for number in range(32))):\n"
        "        try:\n"
        "            open(f'/proc/{pid}/{name}', 'rb').close()\n"
        "            found.append((pid, name))\n"
        "        except OSError:\n"
        "            pass\n"
        "print(found)\n"
    )
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "probe.py").write_text(probe)
    text = (
        "import os, subprocess, sys\n"
        "def test_one():\n"
        "    drop = ['setpriv', '--bounding-set=-all', '--inh-caps=-all'] if os.getuid() == 0 else []\n"
        "    argv = [*drop, sys.executable, 'probe.py', str(os.getpid()), str(os.getppid())]\n"
        "    out = subprocess.run(argv, capture_output=True, text=True)\n"
        "    assert out.stdout.strip() == '[]', out\n"
    )
    code, output = _run(tmp_path, text, expected=["test_one"])
    assert code == 0, output


def test_a_descendant_that_stays_does_not_hold_the_verdict_up(tmp_path: Path) -> None:
    """A child that keeps every descriptor open outlives the tests, and the verdict comes without it."""
    text = (
        "import os, signal\n"
        "def test_one():\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        signal.pause()\n"
        "    with open('child', 'w') as file:\n"
        "        file.write(str(child))\n"
    )
    command = _lay_out(tmp_path, text, expected=["test_one"])
    # The output goes nowhere: reading it to its end would be waiting for the child, too.
    with subprocess.Popen(command, cwd=tmp_path / "work", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        try:
            assert run.wait(30) == 0
        finally:
            run.kill()
            os.kill(int((tmp_path / "work" / "child").read_text()), signal.SIGKILL)  # raises if it is not there


def test_a_system_that_cannot_keep_others_out_is_no_pass(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where the system refuses to shut other processes out, no test is run, and nothing passes."""
    (tmp_path / "plan.json").write_text("{}")
    monkeypatch.setattr(run_tests, "HERE", str(tmp_path))
    monkeypatch.setattr(run_tests, "_out_of_reach", lambda: False)
    assert run_tests.main() == run_tests.UNFIT != 0
