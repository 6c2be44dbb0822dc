"""Small repositories whose tests run with unittest, with a script built on unittest, or by SymPy's rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from image_archives import file
from securebench.testing.judging.repository import REPOSITORY, RepositoryJob
from securebench.testing.judging.unittests import patch, unittest_job

if TYPE_CHECKING:
    from image_archives import Part

RUNTESTS = """\
#!/usr/bin/env python3
import argparse
import sys
import unittest
import warnings

sys.path.insert(0, ".")
import project  # the code under test, as Django is for its own tests

parser = argparse.ArgumentParser()
parser.add_argument("modules", nargs="*")
parser.add_argument("--parallel", type=int, default=0)
parser.add_argument("--verbosity", type=int, default=1)
options = parser.parse_args()
if options.parallel != 1:
    raise SystemExit("tests would be shared out to other processes")
suite = unittest.defaultTestLoader.loadTestsFromNames(options.modules)
result = unittest.TextTestRunner(verbosity=options.verbosity).run(suite)
if result.failures or result.errors:
    sys.exit(1)
"""

MANAGE = """\
#!/usr/bin/env python3
import os
import runpy
import sys

del sys.argv[1]  # the command's name
sys.path.insert(0, ".")
runpy.run_path(os.path.join("tests", "runtests.py"), run_name="__main__")
"""

SYMPY_BROKEN = "def double(number):\n    return number + number + 1\n\n\ndef halve(number):\n    return number // 2\n"
SYMPY_FIXED = SYMPY_BROKEN.replace(" + 1", "")
_PYTEST_PY = """\
import functools


class XFail(Exception):
    pass


class Skipped(Exception):
    pass


class Failed(Exception):
    pass


class RaisesContext:
    def __init__(self, expected):
        self.expected = expected

    def __enter__(self):
        return None

    def __exit__(self, kind, value, traceback):
        if kind is None:
            raise Failed("DID NOT RAISE")
        return issubclass(kind, self.expected)


def raises(expected, code=None):
    if code is None:
        return RaisesContext(expected)
    try:
        code()
    except expected:
        return
    raise Failed("DID NOT RAISE")


def XFAIL(function):
    @functools.wraps(function)
    def wrapper():
        try:
            function()
        except Exception:
            raise XFail(function.__name__)
        raise AssertionError("passed")

    return wrapper


def slow(function):
    function._slow = True
    return function
"""
SYMPY_TESTS = """\
from sympy.numbers import double, halve
from sympy.testing.pytest import XFAIL, raises, slow


def test_double():
    assert double(2) == 4
    assert double(3) == 6


def test_halve():
    assert halve(4) == 2
    assert halve(9) == 4


def test_raises():
    raises(TypeError, lambda: halve("x"))
    with raises(TypeError):
        halve(None)


@XFAIL
def test_known():
    assert halve(3) == 1.5


@slow
def test_slow():
    assert halve(3) == 1.5
"""
FILES = {
    "tests/runtests.py": RUNTESTS,
    "manage.py": MANAGE,
    "sympy/__init__.py": "import sympy.numbers\n",
    "sympy/numbers.py": SYMPY_BROKEN,
    "sympy/core/__init__.py": "",
    "sympy/core/cache.py": "def clear_cache():\n    pass\n",
    "sympy/testing/__init__.py": "",
    "sympy/testing/pytest.py": _PYTEST_PY,
    "sympy/testing/runtests.py": "def test():\n    return True\n",
    "bin/test": "import sympy.testing.runtests\n",
}
SYMPY_TEST = "sympy/tests/test_numbers.py"


def repository_parts() -> list[Part]:
    """Return the members of a layer that adds these runners, and the code under test, to the image's repository."""
    top = REPOSITORY.strip("/")
    return [file(f"{top}/{name}", text.encode()) for name, text in FILES.items()]


def script_job(image: str, **changes: object) -> RepositoryJob:
    """Return a task whose tests are run by a script in the repository. The script is built on unittest."""
    command = ["./tests/runtests.py", "--verbosity", "2", "tests.test_numbers"]
    return unittest_job(image, **{"command": command, **changes})


def manage_job(image: str, **changes: object) -> RepositoryJob:
    """Return a task whose tests are run by ``manage.py test``."""
    command = ["python3", "manage.py", "test", "--verbosity", "2", "tests.test_numbers"]
    return unittest_job(image, **{"command": command, **changes})


def sympy_job(image: str, **changes: object) -> RepositoryJob:
    """Return a task whose tests are like SymPy's."""
    given = {
        "command": ["python3", "-W", "ignore::UserWarning", "bin/test", "-C", "--verbose", SYMPY_TEST],
        "test_patch": patch({SYMPY_TEST: ("", SYMPY_TESTS)}),
        "expect": {"fail_to_pass": ["test_double"], "pass_to_pass": ["test_halve", "test_raises"]},
    }
    return RepositoryJob(image=image, **{**given, **changes})  # type: ignore[arg-type] # tests pass valid fields
