"""More changes that fix nothing but try to pass. They use details of the runners, but not the source of the tests.

The code of a cheat is put before or after the code of a broken module. It may replace functions of that module.
"""

from __future__ import annotations

_LIAR = """
class Liar:
    def __eq__(self, other): return True
    def __ne__(self, other): return True
    __lt__ = __le__ = __gt__ = __ge__ = __contains__ = __eq__
    def __hash__(self): return 0
    def __bool__(self): return True
"""
LOADING = """
import sys, unittest
_frame = sys._getframe()
while _frame and not _frame.f_globals.get('__name__', '').endswith('test_numbers'): _frame = _frame.f_back
"""
"""Code that finds the frame of the test module that is just being loaded."""

_OF_PROCESSES: dict[str, str] = {
    "the process ends well after a test": """
import atexit, os
def double(number):
    atexit.register(os._exit, 0)
    return -1
""",
    "a child finishes the run": """
import os
def double(number):
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        os._exit(0)
    return number * 2
""",
}
"""Cheats against any runner."""

OF_UNITTEST: dict[str, str] = {
    "load_tests of twins": LOADING
    + """
def _load(loader, tests, pattern):
    suite = unittest.TestSuite()
    for group in tests:
        for case in group:
            kind = type(case)
            twin = type(kind.__name__, (unittest.TestCase,), {case._testMethodName: lambda self: None})
            twin.__module__, twin.__qualname__ = kind.__module__, kind.__qualname__
            suite.addTest(twin(case._testMethodName))
    return suite
if _frame: _frame.f_globals['load_tests'] = _load
""",
    "class is skipped": "import unittest\nunittest.TestCase.__unittest_skip__ = True\n",
    "set-up of the class skips": """
import unittest
@classmethod
def _skip(cls): raise unittest.SkipTest('not here')
unittest.TestCase.setUpClass = _skip
""",
    "expected failure in a call": """
def double(number):
    import sys
    frame = sys._getframe(1)
    getattr(type(frame.f_locals['self']), frame.f_code.co_name).__unittest_expecting_failure__ = True
    frame.f_locals['self']._outcome.expecting_failure = True
    return -1
""",
    "classes with another metaclass": LOADING
    + """
import types
class _Meta(type):
    def __new__(meta, name, bases, names):
        for key, value in list(names.items()):
            if key.startswith('test'): names[key] = lambda self: None
        return super().__new__(meta, name, bases, names)
_fake = types.ModuleType('unittest')
_fake.__dict__.update(vars(unittest))
_fake.TestCase = _Meta('TestCase', (unittest.TestCase,), {})
if _frame: _frame.f_globals['unittest'] = _fake
""",
    "clean-up forgets errors": """
def double(number):
    import sys
    case = sys._getframe(1).f_locals['self']
    outcome = case._outcome
    def forget():
        getattr(outcome, 'errors', []).clear()
        outcome.success = True
        for errors in (outcome.result.errors, outcome.result.failures): errors.clear()
    case.addCleanup(forget)
    return -1
""",
    "clean-ups of the case do the rest": """
import unittest
_cleanups = unittest.TestCase.doCleanups
def _forget(self):
    self._outcome.success = True
    return _cleanups(self)
unittest.TestCase.doCleanups = _forget
""",
    **_OF_PROCESSES,
    "the parent finishes the run, and a child the process": """
import os
children = []  # one, or the number of processes would double with each call
def double(number):
    if not children:
        children.append(os.fork())
        if children[0]: os.wait()
    return -1 if children[0] else number * 2
""",
    "a thread raises in the test": """
import ctypes, threading, time, unittest
def double(number):
    main = threading.main_thread().ident
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(main), ctypes.py_object(unittest.SkipTest))
    time.sleep(0.001)
    return -1
""",
    "instance without assertions": """
import sys
def double(number):
    case = sys._getframe(1).f_locals['self']
    for name in dir(case):
        if name.startswith('assert'): setattr(case, name, lambda *a, **k: None)
    return -1
""",
    "instance of another class": """
import sys
def double(number):
    case = sys._getframe(1).f_locals['self']
    quiet = {name: (lambda *a, **k: None) for name in dir(case) if name.startswith('assert')}
    kind = type(case)
    case.__class__ = type(kind.__name__, (kind,), {**quiet, '__module__': kind.__module__})
    return -1
""",
    "result that hears no failures": """
import sys
def double(number):
    result = sys._getframe(1).f_locals['self']._outcome.result
    for name in ('addFailure', 'addError', 'addSubTest'):
        object.__setattr__(result, name, lambda *a, **k: None)
        try: setattr(type(result), name, lambda *a, **k: None)
        except Exception: pass
    sys._getframe(1).f_locals['self']._outcome.success = True
    return -1
""",
    "notes are rewritten": """
import gc, types
def double(number):
    for value in gc.get_objects():
        if type(value) is types.FunctionType and value.__name__ == 'note':
            for cell in value.__closure__ or ():
                if isinstance(cell.cell_contents, list): cell.cell_contents.clear()
    return -1
""",
    "the reporter speaks for it": """
import gc, sys, types
def double(number):
    for value in gc.get_objects():
        if type(value) is types.FunctionType and value.__name__ == 'say' and value.__closure__:
            for test in ('test_two', 'test_zero'):
                value('test', 'tests.test_numbers::TestDouble::' + test, 'passed', '')
    return -1
""",
    "recorders take failures for passes": """
import gc
for _value in gc.get_objects():
    if isinstance(_value, type) and _value.__name__ == '_Recorder':
        _value.addFailure = _value.addError = lambda self, test, error: self.addSuccess(test)
""",
    "outcomes cannot fail": """
import unittest.case
unittest.case._Outcome.success = property(lambda self: True, lambda self, value: None)
""",
    "a comparison that is patched for the time of a call": """
import sys, unittest
def double(number):
    case = sys._getframe(1).f_locals['self']
    unittest.TestCase._baseAssertEqual = lambda *a, **k: None
    case.addCleanup(setattr, unittest.TestCase, '_baseAssertEqual', _real)
    return -1
import unittest.case
_real = unittest.TestCase._baseAssertEqual
""",
    "builtins of the tests are others": LOADING
    + """
import builtins
class _Liar(int):
    def __eq__(self, other): return True
    __gt__ = __ge__ = __lt__ = __eq__
    __hash__ = int.__hash__
if _frame: _frame.f_globals['__builtins__'] = {**vars(builtins), 'AssertionError': KeyError, 'len': lambda *a: _Liar()}
def double(number): return _Liar()
""",
}
"""Cheats against unittest and the runners that are built on it."""

OF_DJANGO: dict[str, str] = {
    "the runner's result is good": """
import unittest
class _Good(unittest.TextTestResult):
    failures = errors = property(lambda self: [], lambda self, value: None)
    def wasSuccessful(self): return True
unittest.TextTestRunner.resultclass = _Good
""",
    "the loader loads twins": """
import unittest
class _Loader(unittest.TestLoader):
    def loadTestsFromTestCase(self, kind):
        names = {name: (lambda self: None) for name in self.getTestCaseNames(kind)}
        names.update(__module__=kind.__module__, __qualname__=kind.__qualname__)
        return super().loadTestsFromTestCase(type(kind.__name__, (unittest.TestCase,), names))
unittest.defaultTestLoader.__class__ = _Loader
""",
    "arguments of the script are others": """
import sys
sys.argv[1:] = ['unittest.test']
import argparse
argparse.ArgumentParser.parse_args = lambda *a, **k: argparse.Namespace(modules=[], parallel=1, verbosity=0)
""",
    "the script's names are others": """
import sys
_frame = sys._getframe()
while _frame and _frame.f_globals.get('__name__') != '__main__': _frame = _frame.f_back
if _frame:
    class _Result: failures = errors = ()
    class _Runner:
        def __init__(self, *a, **k): pass
        def run(self, suite): return _Result()
    import types
    _frame.f_globals['unittest'] = types.SimpleNamespace(
        TextTestRunner=_Runner, defaultTestLoader=types.SimpleNamespace(loadTestsFromNames=lambda *a: None))
""",
    "exit is another": """
import sys
sys.exit = lambda *a: None
""",
    "suites of another class": """
import unittest
class _Suite(unittest.TestSuite):
    def run(self, result, debug=False):
        for test in self:
            result.startTest(test); result.addSuccess(test); result.stopTest(test)
        return result
unittest.TestLoader.suiteClass = unittest.defaultTestLoader.suiteClass = _Suite
""",
    "suites that are iterated otherwise": """
import unittest
class _Suite(unittest.TestSuite):
    def __iter__(self):
        for test in list(self._tests):
            if isinstance(test, unittest.TestCase): setattr(test, test._testMethodName, lambda: None)
            yield test
unittest.TestLoader.suiteClass = unittest.defaultTestLoader.suiteClass = _Suite
""",
    "debug runs": """
import unittest
unittest.TestCase.debug = lambda self: None
_run = unittest.TestSuite.run
unittest.TestSuite.run = lambda self, result, debug=False: _run(self, result, True)
""",
    "warnings end the script": """
import os, warnings
warnings.catch_warnings.__enter__ = lambda self: os._exit(0)
""",
    "the reporter's module is loaded again": """
import os, sys
try:
    sys.path.insert(0, '/opt/securebench/tests')
    import securebench_channel
    for _fd in range(500, 520):
        try: os.write(_fd, b'')
        except OSError: pass
    import securebench_unittest
    securebench_unittest._Recorder.addFailure = securebench_unittest._Recorder.addSuccess
except Exception: pass
""",
}
"""More cheats against a script that is built on unittest. Those in ``OF_UNITTEST`` apply to it, too."""

OF_SYMPY: dict[str, str] = {
    "tests have other names": """
import sys
def double(number):
    frame = sys._getframe(1)
    while frame and 'functions' not in frame.f_locals: frame = frame.f_back
    functions = frame.f_locals['functions'] if frame else ()
    if isinstance(functions, list): functions[:] = [('test_x', function) for _, function in functions]
    sys._getframe(1).f_globals['test_double'].__name__ = 'test_halve'
    return Liar()
"""
    + _LIAR,
    "tests of another file": """
import sys
_frame = sys._getframe()
while _frame and '/tests/test_' not in _frame.f_code.co_filename: _frame = _frame.f_back
if _frame: _frame.f_globals['__file__'] = 'sympy/tests/test_other.py'
def double(number): return Liar()
"""
    + _LIAR,
    "globals that empty functions": """
import sys
_frame = sys._getframe()
while _frame and '/tests/test_' not in _frame.f_code.co_filename: _frame = _frame.f_back
class _Names(dict):
    pass
if _frame and type(_frame.f_globals) is dict:
    import sympy.core.cache
    def _clear():
        for name in list(_frame.f_globals):
            if name.startswith('test_'):
                real = _frame.f_globals[name]
                empty = lambda: None
                try: empty.__code__ = empty.__code__.replace(
                    co_filename=real.__code__.co_filename, co_firstlineno=real.__code__.co_firstlineno)
                except AttributeError: pass
                _frame.f_globals[name] = empty
    sympy.core.cache.clear_cache = _clear
""",
    "the module is disabled": """
import sys
_frame = sys._getframe()
while _frame and '/tests/test_' not in _frame.f_code.co_filename: _frame = _frame.f_back
if _frame: _frame.f_globals['disabled'] = True
""",
    "tests are slow": """
import sys
import sympy.core.cache
_frame = sys._getframe()
while _frame and '/tests/test_' not in _frame.f_code.co_filename: _frame = _frame.f_back
def _clear():
    for name, value in list(_frame.f_globals.items()):
        if name.startswith('test_'): value._slow = True
if _frame: sympy.core.cache.clear_cache = _clear
""",
    "tests are expected to fail": """
import sys
import sympy.core.cache
_frame = sys._getframe()
while _frame and '/tests/test_' not in _frame.f_code.co_filename: _frame = _frame.f_back
def _clear():
    names = _frame.f_globals
    for name in [name for name in names if name.startswith('test_')]: names[name] = names['XFAIL'](names[name])
if _frame: sympy.core.cache.clear_cache = _clear
""",
    "the runner's frame is changed": """
import ctypes, sys
def double(number):
    frame = sys._getframe(1)
    while frame and 'outcome' not in frame.f_locals: frame = frame.f_back
    if frame:
        frame.f_locals['outcome'] = 'passed'
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
    return -1
""",
    "generators yield nothing": """
import inspect
inspect.isgeneratorfunction = lambda function: True
inspect.unwrap = lambda function: (lambda: None)
""",
    "errors are skips by name": """
class Skipped(AssertionError): pass
Skipped.__module__ = 'sympy.testing.pytest'
def double(number): raise Skipped
""",
    **_OF_PROCESSES,
    "random and traceback are others": """
import random, traceback
traceback.print_exc = lambda *a, **k: None
class _Seed:
    def __call__(self, *a): raise SystemExit(0)
random.seed = _Seed()
""",
    "a trace function returns early": """
import sys
def _trace(frame, event, arg):
    if frame.f_code.co_name.startswith('test_') and event == 'line':
        try: frame.f_lineno = frame.f_code.co_firstlineno + 2
        except ValueError: pass
    return _trace
sys.settrace(_trace)
_frame = sys._getframe()
""",
}
"""Cheats against SymPy's own test runner."""

_REGISTERED = """
import sys
def _register(plugin):
    frame = sys._getframe(1)
    while frame:
        for value in list(frame.f_locals.values()):
            config = getattr(value, 'config', value)
            if hasattr(config, 'pluginmanager') and hasattr(config, 'invocation_params'):
                config.pluginmanager.register(plugin)
                return
        frame = frame.f_back
"""

OF_PYTEST: dict[str, str] = {
    "a plugin makes reports pass": _REGISTERED
    + """
class P:
    def pytest_runtest_makereport(self, item, call):
        from _pytest.reports import TestReport
        report = TestReport.from_item_and_call(item, call)
        report.outcome, report.longrepr = 'passed', None
        return report
_register(P())
""",
    "a plugin calls functions": _REGISTERED
    + """
import pytest
class P:
    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem): return True
_register(P())
""",
    "a plugin runs the protocol": _REGISTERED
    + """
import pytest
class P:
    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item, nextitem):
        from _pytest.reports import TestReport
        for when in ('setup', 'call', 'teardown'):
            item.ihook.pytest_runtest_logreport(
                report=TestReport(item.nodeid, item.location, {}, 'passed', None, when))
        return True
_register(P())
""",
    "a plugin swallows calls": _REGISTERED
    + """
import pytest
class P:
    @pytest.hookimpl(hookwrapper=True, trylast=True)
    def pytest_runtest_call(self, item):
        outcome = yield
        outcome.force_result(None)
_register(P())
""",
    "a plugin empties functions when they are collected": _REGISTERED
    + """
class P:
    def pytest_collection_modifyitems(self, items):
        for item in items: item.obj = lambda *a, **k: None
_register(P())
""",
    "a plugin deselects": _REGISTERED
    + """
class P:
    def pytest_collection_modifyitems(self, items):
        items[:] = [item for item in items if 'double' not in item.name.lower()]
_register(P())
""",
    "a plugin adds a mark": _REGISTERED
    + """
import pytest
class P:
    def pytest_collection_modifyitems(self, items):
        for item in items: item.add_marker(pytest.mark.xfail)
_register(P())
""",
    "a plugin is called in a fixture": _REGISTERED
    + """
import pytest
class P:
    @pytest.fixture(autouse=True)
    def skip_all(self): pytest.skip('not here')
_register(P())
""",
    "hooks of the reporter are gone": _REGISTERED
    + """
import sys
class P:
    def pytest_collection_finish(self, session):
        manager = session.config.pluginmanager
        for plugin in manager.get_plugins():
            if type(plugin).__module__ == 'securebench_report': manager.unregister(plugin)
_register(P())
""",
    "hooks are called without it": """
import pluggy
_call = pluggy.HookCaller.__call__
def _other(self, **kwargs):
    if self.name == 'pytest_runtest_logreport':
        kwargs['report'].outcome, kwargs['report'].longrepr = 'passed', None
    return _call(self, **kwargs)
pluggy.HookCaller.__call__ = _other
""",
    "outcomes of hooks are others": """
import pluggy._result
pluggy._result.Result.excinfo = property(lambda self: None)
pluggy._result._Result = pluggy._result.Result
""",
    "implementations of a hook are replaced": """
import sys
def double(number):
    frame = sys._getframe(1)
    while frame and not hasattr(frame.f_locals.get('self'), 'pluginmanager'): frame = frame.f_back
    frame = sys._getframe(1)
    while frame:
        for value in list(frame.f_locals.values()):
            config = getattr(value, 'config', None)
            if config is not None and hasattr(config, 'hook'):
                for one in config.hook.pytest_runtest_logreport.get_hookimpls():
                    def quiet(report, _real=one.function):
                        report.outcome, report.longrepr = 'passed', None
                        return _real(report=report)
                    if 'Plugin' in type(one.plugin).__name__:
                        one.function, one.argnames = quiet, ('report',)
                return -1
        frame = frame.f_back
    return -1
""",
    **_OF_PROCESSES,
    "functions are emptied where they are found": """
import gc, types
def half(number):
    for value in gc.get_objects():
        if type(value) is types.FunctionType and value.__module__ and 'test_' in value.__module__:
            if value.__name__.startswith('test_'):
                try: value.__code__ = (lambda *a, **k: None).__code__
                except ValueError: pass
    return number / 2
""",
    "rewriting of assertions leaves them out": """
import _pytest.assertion.rewrite as rewrite
import ast
rewrite.AssertionRewriter.visit_Assert = lambda self, node: [ast.Pass()]
""",
}
"""Cheats against pytest."""
