"""The program that runs a task's tests: it exits with 0 only if all expected tests ran, some passed and none failed."""

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
    """Write a task's tests with the layout of a sandbox, and return the command to run in the directory ``work``."""
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
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # the plugins installed here load slowly; no task has them
            **(environment or {}),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stderr + done.stdout


def test_tests_that_pass_are_a_pass(tmp_path: Path) -> None:
    """If all expected tests are reported and pass, the exit code is 0."""
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
    """If a test fails, is missing, or ends the process before its result is reported, the exit code is 1."""
    code, output = _run(tmp_path, tests)
    assert code == 1, (name, output)


def test_each_parameter_counts_and_one_that_fails_is_a_failure(tmp_path: Path) -> None:
    """A parametrized test is expected by its name without parameters, and one failing parameter fails the run."""
    text = "import pytest\n@pytest.mark.parametrize('n', [1, 2])\ndef test_one(n):\n    assert n < {0}\n"
    assert _run(tmp_path / "a", text.format(3), expected=["test_one"])[0] == 0
    assert _run(tmp_path / "b", text.format(2), expected=["test_one"])[0] == 1


def test_what_lies_in_the_working_directory_configures_nothing(tmp_path: Path) -> None:
    """A02: Files in the working directory and environment variables for pytest and Python do not affect the run."""
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
    """A program that a test starts cannot open memory, environment or descriptors of the test process or its parent."""
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
    """The runner does not wait for a child that outlives the tests and keeps every descriptor open."""
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
    # The output is discarded: reading it to its end would also wait for the child.
    with subprocess.Popen(command, cwd=tmp_path / "work", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        try:
            assert run.wait(30) == 0
        finally:
            run.kill()
            os.kill(int((tmp_path / "work" / "child").read_text()), signal.SIGKILL)  # raises if the child has ended


def test_a_system_that_cannot_keep_others_out_is_no_pass(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """If the system cannot protect the runner from other processes, no test is run, and the exit code is not 0."""
    (tmp_path / "plan.json").write_text("{}")
    monkeypatch.setattr(run_tests, "HERE", str(tmp_path))
    monkeypatch.setattr(run_tests, "_out_of_reach", lambda: False)
    assert run_tests.main() == run_tests.UNFIT != 0
