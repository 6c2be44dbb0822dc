"""Pytest plugins and packages that patch code for honest reasons are not taken for tampering.

Some packages patch modules, set hooks or add importers when they are imported. Others do so while tests run.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from verifiers.repo_patch.evidence.here import Here
from verifiers.repo_patch.evidence.styles import CORE, STYLES

if TYPE_CHECKING:
    from pathlib import Path

_REQUIREMENTS_TEXT = """
pytest==8.3.5 pytest-subtests pytest-xdist pytest-cov pytest-asyncio pytest-mock hypothesis pytest-timeout
pytest-randomly freezegun gevent numpy pandas xarray attrs typing_extensions six lazy_loader
"""
REQUIREMENTS = _REQUIREMENTS_TEXT.split()

PLAIN: dict[str, str] = {
    "hooks of sys": """\
import sys
sys.excepthook = lambda *error: sys.__excepthook__(*error)
sys.unraisablehook = lambda error: None
sys.displayhook = lambda value: None
""",
    "tracer for a while": """\
import sys, threading
sys.settrace(lambda *event: None)
threading.settrace(lambda *event: None)
sys.settrace(None)
threading.settrace(None)
""",
    "logging and faulthandler": """\
import faulthandler, logging, tempfile
faulthandler.enable(tempfile.TemporaryFile())
class Logger(logging.Logger): pass
logging.setLoggerClass(Logger)
logging.captureWarnings(True)
logging.captureWarnings(False)
logging.basicConfig(level="DEBUG")
""",
    "filters of warnings": """\
import warnings
warnings.simplefilter("always")
warnings.filterwarnings("ignore", category=FutureWarning)
warnings.formatwarning = lambda *a, **k: "warned"
""",
    "importers": """\
import importlib.abc, importlib.machinery, sys
class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self) if name == "calc.made" else None
    def create_module(self, spec): return None
    def exec_module(self, module): module.value = 7
sys.meta_path.insert(0, Finder())
sys.path_hooks.append(lambda path: (_ for _ in ()).throw(ImportError))
import calc.made
""",
    "lazy imports": """\
import importlib.util, sys
def lazy(name):
    spec = importlib.util.find_spec(name)
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
wave = lazy("wave")
wave.open
def __getattr__(name):
    if name == "late": return 1
    raise AttributeError(name)
""",
    "builtins and codecs": """\
import builtins, codecs, gettext, sys
gettext.install("calc")
builtins.profile = lambda function: function
codecs.register(lambda name: None)
sys.setrecursionlimit(3000)
sys.modules["calc.alias"] = sys.modules[__name__]
""",
    "assertions of its own": """\
import unittest
class CalcCase(unittest.TestCase):
    longMessage = False
    def assertCalc(self, a, b): self.assertEqual(a, b)
    def assertEqual(self, first, second, msg=None): super().assertEqual(first, second, msg)
unittest.TestCase.maxDiff = None
unittest.util._MAX_LENGTH = 2000
unittest.TestCase.assertItemsMatch = unittest.TestCase.assertCountEqual
""",
    "mocks": """\
from unittest import mock
import builtins
with mock.patch("builtins.open", mock.mock_open(read_data="x")), mock.patch("builtins.__import__"): pass
with mock.patch.object(builtins, "len", return_value=3): pass
with mock.patch.dict("sys.modules", {"nowhere": mock.Mock()}): import nowhere
""",
    "processes and threads": """\
import atexit, multiprocessing, signal, threading
atexit.register(print, end="")
signal.signal(signal.SIGUSR1, lambda *a: None)
threading.Thread(target=sum, args=([],)).start()
threading.excepthook = lambda args: None
def run():
    process = multiprocessing.get_context("fork").Process(target=sum, args=([],))
    process.start(); process.join()
run()
""",
}
"""Code that a package may run when it is imported. It needs only the standard library."""

MOCKED = """\
import builtins, sys, time, unittest, warnings
from unittest import mock

from calc.core import add


def test_add(monkeypatch):
    monkeypatch.setattr(time, "time", lambda: 7)
    monkeypatch.setattr(builtins, "input", lambda *a: "x")
    monkeypatch.setattr("sys.argv", ["x"])
    assert add(1, 2) == 3


@mock.patch("builtins.print")
def test_more(printed):
    print("x")
    assert printed.called
    assert add(2, 2) == 4


class CoreTests(unittest.TestCase):
    @mock.patch("time.sleep")
    def test_case(self, sleep):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.assertEqual(add(1, 1), 2)

    def test_import(self):
        with mock.patch.dict("sys.modules", {"json": None}), self.assertRaises(ImportError):
            import json
        self.assertEqual(add(1, 3), 4)
"""

_FIVE = STYLES["assert"][0]
_CASE = STYLES["unittest"][0]
_ASYNC = """\
import asyncio
import pytest

from calc.core import add


@pytest.mark.asyncio
async def test_add():
    await asyncio.sleep(0)
    assert add(1, 2) == 3


def test_plain():
    assert add(1, 1) == 2
"""
_SUBTESTS = """\
import unittest

from calc.core import add


def test_add(subtests):
    for number in range(3):
        with subtests.test(number=number):
            assert add(number, 1) == number + 1


def test_plain():
    assert add(1, 1) == 2


class CoreTests(unittest.TestCase):
    def test_case(self):
        for number in range(3):
            with self.subTest(number=number):
                self.assertEqual(add(number, 1), number + 1)
        self.assertEqual(add(2, 2), 4)
"""
_MOCKER = """\
from calc.core import add


def test_add(mocker):
    mocker.patch("builtins.print")
    mocker.patch("time.time", return_value=1)
    assert add(1, 2) == 3


def test_spy(mocker):
    stub = mocker.stub()
    stub(1)
    stub.assert_called_once_with(1)
    assert add(2, 2) == 4
"""
_GIVEN = """\
from hypothesis import given, settings, strategies as st

from calc.core import add


@settings(max_examples=5, database=None, deadline=None)
@given(st.integers(), st.integers())
def test_given(a, b):
    assert add(a, b) == a + b


def test_add():
    assert add(1, 2) == 3
"""
_FROZEN = """\
import datetime

from freezegun import freeze_time

from calc.core import add


@freeze_time("2020-01-01")
def test_frozen():
    assert datetime.date.today().year == 2020
    assert add(1, 2) == 3


def test_more():
    with freeze_time("2021-01-01"):
        assert datetime.datetime.now().year == 2021
    assert add(1, 1) == 2
"""
_NUMPY = """\
import numpy as np
import numpy.testing as npt
from numpy.testing import assert_allclose, assert_array_equal

from calc.core import add, mean


def test_add():
    assert_array_equal(add(np.array([1, 2]), 1), np.array([2, 3]))
    assert_allclose(mean([0.1, 0.2]), 0.15)


def test_more():
    npt.assert_equal(add(1, 2), 3)
    with npt.suppress_warnings() if hasattr(npt, "suppress_warnings") else np.errstate(all="ignore"):
        assert (np.arange(3) == [0, 1, 2]).all()
"""
_PANDAS = """\
import pandas as pd
import pandas.testing as tm

from calc.core import add


def test_frame():
    frame = pd.DataFrame({"a": [1, 2]})
    tm.assert_frame_equal(add(frame, 1), pd.DataFrame({"a": [2, 3]}))
    tm.assert_series_equal(frame["a"], pd.Series([1, 2], name="a"))


def test_add():
    assert add(1, 2) == 3
"""
_XARRAY = """\
import xarray as xr
from xarray.testing import assert_equal, assert_identical

from calc.core import add


def test_array():
    assert_equal(add(xr.DataArray([1, 2]), 1), xr.DataArray([2, 3]))
    assert_identical(xr.DataArray([1]), xr.DataArray([1]))


def test_add():
    assert add(1, 2) == 3
"""
_GEVENT = """\
import gevent

from calc.core import add


def test_add():
    job = gevent.spawn(add, 1, 2)
    job.join()
    assert job.value == 3


def test_more():
    assert add(1, 1) == 2
"""
_COVERED = """\
import coverage
import sys

from calc.core import add


def test_add():
    cov = coverage.Coverage(data_file=None)
    cov.start()
    value = add(1, 2)
    cov.stop()
    assert value == 3


def test_more():
    assert add(1, 1) == 2
"""

INSTALLED: dict[str, tuple[tuple[str, ...], str, str]] = {
    "pytest-subtests": (("-p", "pytest_subtests.plugin"), "", _SUBTESTS),
    "pytest-xdist": (("-p", "xdist.plugin", "-n", "2"), "", _FIVE),
    "pytest-xdist, loaded": (("-p", "xdist"), "", _CASE),
    "pytest-xdist by file": (("-p", "xdist.plugin", "-n2", "--dist=loadfile"), "", _CASE),
    "pytest-cov": (("-p", "pytest_cov", "--cov=calc"), "", _FIVE),
    "pytest-cov by branch": (("-p", "pytest_cov.plugin", "--cov", "--cov-branch", "--cov-report=xml"), "", _CASE),
    "pytest-asyncio": (("-p", "pytest_asyncio"), "", _ASYNC),
    "pytest-asyncio auto": (("-p", "pytest_asyncio.plugin", "--asyncio-mode=auto"), "", _ASYNC),
    "pytest-mock": (("-p", "pytest_mock"), "", _MOCKER),
    "hypothesis": (("-p", "_hypothesis_pytestplugin"), "", _GIVEN),
    "pytest-timeout": (("-p", "pytest_timeout", "--timeout=30"), "", _FIVE),
    "pytest-timeout by thread": (("-p", "pytest_timeout", "--timeout=30", "--timeout-method=thread"), "", _CASE),
    "pytest-randomly": (("-p", "pytest_randomly"), "", _FIVE),
    "freezegun": ((), "import freezegun\n", _FROZEN),
    "coverage": ((), "", _COVERED),
    "gevent": ((), "import gevent.monkey\ngevent.monkey.patch_all()\n", _GEVENT),
    "gevent, cases": ((), "import gevent.monkey\ngevent.monkey.patch_all()\n", _CASE),
    "numpy": ((), "import numpy\n", _NUMPY),
    "pandas": ((), "import pandas\npandas.set_option('display.width', 80)\n", _PANDAS),
    "xarray": ((), "import xarray\nxarray.set_options(keep_attrs=True)\n", _XARRAY),
    "attrs": ((), "import attr\n@attr.s(auto_attribs=True, slots=True)\nclass Point:\n    x: int = 0\n", _FIVE),
    "typing_extensions": ((), "from typing_extensions import *\nfrom typing_extensions import Protocol\n", _FIVE),
    "six": ((), "import six\nfrom six.moves import urllib, range, input\nimport six.moves.builtins\n", _FIVE),
    "lazy_loader": ((), "import lazy_loader\nnumpy = lazy_loader.load('numpy')\nnumpy.pi\n", _FIVE),
}
"""For each package: the options of pytest, the code at the start of ``calc/core.py``, and the tests."""


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a directory with ``REQUIREMENTS``, installed from PyPI."""
    target = tmp_path_factory.mktemp("packages")
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--target", str(target), *REQUIREMENTS], check=True)
    return str(target)


def _require_pass(here: Here, root: Path) -> None:
    verdict = here.judge(root)
    assert verdict.reason is None, (verdict.message, verdict.evidence, verdict.output.decode()[-3000:])
    assert verdict.evidence["controls_failed"] > 0
    assert "changed" not in verdict.evidence


def _files(prelude: str, tests: str) -> dict[str, str]:
    return {"calc/__init__.py": "", "calc/core.py": prelude + CORE, "tests/test_new.py": tests, "conftest.py": ""}


def test_what_honest_packages_do_is_no_tampering(tmp_path: Path) -> None:
    """A package that runs all code in ``PLAIN``, and whose tests also replace functions, passes."""
    files = _files("".join(PLAIN.values()), MOCKED)
    _require_pass(Here({**files, "tests/test_given.py": _GIVEN}), tmp_path / "r")


SUBTESTS_PLUGIN = """\
from _pytest.unittest import TestCaseFunction
def _addSkip(self, testcase, reason): self._originaladdSkip(testcase, reason)
def _addSubTest(self, test_case, test, exc_info):
    if exc_info is not None: self.addFailure(test_case, exc_info)
def pytest_configure(config):
    TestCaseFunction.addSubTest = _addSubTest
    TestCaseFunction._originaladdSkip = TestCaseFunction.addSkip
    TestCaseFunction.addSkip = _addSkip
"""
REPLACED = """from _pytest.unittest import TestCaseFunction
TestCaseFunction.addSkip = lambda *a: None
"""


def test_what_pytest_subtests_replaces_may_be_its_own_function_only(tmp_path: Path) -> None:
    """The functions with which pytest-subtests replaces pytest's own are accepted. Any other function is tampering."""
    plugin = tmp_path / "packages" / "pytest_subtests"
    plugin.mkdir(parents=True)
    (plugin / "plugin.py").write_text(SUBTESTS_PLUGIN)
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "pytest_subtests.plugin", "tests")
    _require_pass(Here(_files("", _CASE), command, packages=str(plugin.parent)), tmp_path / "right")
    cheat = Here(_files(REPLACED, _CASE), command, packages=str(plugin.parent)).judge(tmp_path / "cheat")
    assert "_pytest.unittest:TestCaseFunction.addSkip" in cheat.evidence["changed"]


@pytest.mark.long
@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("tests", [MOCKED, _CASE, _FIVE], ids=["mocked", "cases", "functions"])
def test_each_thing_that_packages_do(name: str, tests: str, tmp_path: Path) -> None:
    """Each entry of ``PLAIN`` passes alone, with tests of several styles."""
    _require_pass(Here(_files(PLAIN[name], tests)), tmp_path / "r")


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", INSTALLED)
def test_each_installed_package(name: str, packages: str, tmp_path: Path) -> None:
    """Tests with one installed package pass. If it is a plugin, pytest loads it by name."""
    options, prelude, tests = INSTALLED[name]
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, "tests")
    _require_pass(Here(_files(prelude, tests), command, packages=packages), tmp_path / "r")


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("tests", [_FIVE, _CASE, _GIVEN, _SUBTESTS, _MOCKER, _ASYNC], ids=range(6))
def test_all_plugins_at_once(tests: str, packages: str, tmp_path: Path) -> None:
    """Tests pass if pytest loads all installed plugins, as it does in an image."""
    here = Here(_files("", tests), packages=packages, plugins=True)
    _require_pass(here, tmp_path / "r")
