"""Runs a command based on unittest, and reports each test's outcome to the host.

``securebench_unittest.py module ARGUMENTS`` works like ``python -m unittest ARGUMENTS``, and
``securebench_unittest.py script FILE ARGUMENTS`` like ``python FILE ARGUMENTS``.

unittest is loaded from Python's library before anything of the repository can be imported. A pass or skip of a test
counts only if it was added to the result while ``unittest.TestCase.run`` ran this test, in the main thread of this
process. A runner's output and counts, and other changes to a result, are ignored.

If the host sent ``collect`` in its instructions (``order``), no test runs: see ``_hook_collection``.
"""

import contextlib
import sys
import threading
import types
import unittest
import unittest.mock
import weakref
from os import getcwd
from os.path import abspath, dirname
from typing import Any

from securebench_channel import LONGEST_ID, open_channel, signer  # type: ignore[import-not-found] # beside this file
from securebench_fingerprint import fingerprinter, watcher  # type: ignore[import-not-found] # as above

_WORST_FIRST = ("error", "failed", "skipped", "passed")


class _Recorder:
    """A unittest result that records outcomes and forwards everything to the runner's result."""

    def __init__(self, result: Any, note: Any) -> None:
        self.__dict__.update(_result=result, _note=note)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._result, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._result, name, value)

    @property
    def shouldStop(self) -> bool:
        """Always false: ``--failfast`` is ignored, because controls must fail."""
        return False

    @shouldStop.setter
    def shouldStop(self, value: bool) -> None:
        self._result.shouldStop = value

    def addSuccess(self, test: Any) -> None:
        self._note(test, "passed")
        self._result.addSuccess(test)

    def addError(self, test: Any, error: Any) -> None:
        self._note(test, "error")
        self._result.addError(test, error)

    def addFailure(self, test: Any, error: Any) -> None:
        self._note(test, "failed")
        self._result.addFailure(test, error)

    def addSkip(self, test: Any, reason: Any) -> None:
        self._note(test, "skipped")
        self._result.addSkip(test, reason)

    def addExpectedFailure(self, test: Any, error: Any) -> None:
        self._note(test, "skipped")  # not a pass: code under test can mark any test
        self._result.addExpectedFailure(test, error)

    def addUnexpectedSuccess(self, test: Any) -> None:
        self._note(test, "failed")  # unittest counts it as a failure, too
        self._result.addUnexpectedSuccess(test)

    def addSubTest(self, test: Any, subtest: Any, error: Any) -> None:
        if error is not None:
            self._note(test, "failed")
        self._result.addSubTest(test, subtest, error)


def _test_id(test: Any) -> str:
    """Return ``MODULE::CLASS::METHOD``."""
    kind = type(test)
    return f"{kind.__module__}::{kind.__qualname__}::{test._testMethodName}"[:LONGEST_ID]  # noqa: SLF001 - there is no other name


def _description(test: Any) -> str:
    """Return the first line of a test's docstring, which unittest logs between the test's name and its outcome."""
    lines = (getattr(test, "_testMethodDoc", None) or "").strip().split("\n")
    return str(lines[0].strip())[:LONGEST_ID]


def _name(test: Any) -> Any:
    """Return a test's id and description."""
    return _test_id(test), _description(test)


def _cases(suite: Any) -> Any:
    """Yield the tests of a suite, except tests that the suite creates while it runs."""
    if isinstance(suite, unittest.TestCase):
        yield suite
    elif getattr(type(suite), "__iter__", None) is unittest.BaseTestSuite.__iter__:
        for test in suite:
            yield from _cases(test)


def _hook(say: Any, choose: Any, look: Any) -> None:  # noqa: C901 - all hooks are closures of this one function
    """Make unittest report each test that it runs. Before some tests, check for changes to the test framework.

    The state is in closures, so that code under test cannot find it by a name.
    """
    run_test, run_suite = unittest.TestCase.run, unittest.TestSuite.run
    case, recorder, walk, name_of, ref = unittest.TestCase, _Recorder, _cases, _name, weakref.ref
    thread, order = threading.get_ident, _WORST_FIRST.index
    main = thread()
    running, seen, depth, known = [], [], [], {}  # type: Any, Any, Any, Any

    def named(test: Any) -> Any:
        """Return the id and description that a test had when it was first seen."""
        entry = known.get(id(test))
        if entry is None or entry[0]() is not test:
            entry = known[id(test)] = (ref(test), name_of(test))
        return entry[1]

    def note(test: Any, outcome: str) -> None:
        """Record an outcome of the running test, or a failed set-up or tear-down outside of tests."""
        if running:
            if test is running[0] or getattr(test, "test_case", None) is running[0]:
                seen.append(outcome)
        elif outcome in ("error", "failed"):
            if isinstance(test, case):
                say("test", named(test)[0], outcome, named(test)[1])
            else:  # unittest's placeholder for a failed class or module fixture
                say("unloaded", str(test)[:LONGEST_ID])

    def recorded(result: Any) -> Any:
        return result if isinstance(result, recorder) else recorder(result, note)

    def run(self: Any, result: Any = None) -> Any:
        """Run and report one test. A test that another test or thread runs is not reported."""
        if running or thread() != main or result is None:
            return run_test(self, result)
        test, description = named(self)
        look(id(self))
        running.append(self)
        seen[:] = []
        try:
            return run_test(self, recorded(result))
        finally:
            running.clear()
            say("test", test, min(seen, key=order) if seen else "error", description)

    def run_all(self: Any, result: Any, *rest: Any, **more: Any) -> Any:
        """Run a suite with a recording result. Store the ids of its tests (see ``_cases``) before any test runs."""
        if running or thread() != main:
            return run_suite(self, result, *rest, **more)
        if not depth:
            choose([(id(test), named(test)[0]) for test in walk(self)])
        depth.append(self)
        try:
            return run_suite(self, recorded(result), *rest, **more)
        finally:
            depth.pop()

    unittest.TestCase.run = run  # type: ignore[method-assign]
    unittest.TestSuite.run = run_all  # type: ignore[method-assign]


def _hook_collection(say: Any, *_: Any) -> None:
    """Make unittest report its tests, and the modules that failed to load, instead of running anything."""
    suite, case, test_id = unittest.BaseTestSuite, unittest.TestCase, _test_id

    def collect(test: Any) -> None:
        kind = type(test)
        if isinstance(test, suite):
            for each in test:
                collect(each)
        elif kind.__module__ != "unittest.loader":
            if isinstance(test, case):
                say("collected", test_id(test))
        elif kind.__name__ == "_FailedTest":  # unittest's placeholder for a failed import
            say("unloaded", (test._testMethodName.replace(".", "/") + ".py")[:LONGEST_ID])  # noqa: SLF001 - as above

    def run(self: Any, result: Any = None, *_rest: Any, **_more: Any) -> Any:
        collect(self)
        return result

    unittest.TestCase.run = run  # type: ignore[method-assign]
    unittest.TestSuite.run = run  # type: ignore[method-assign]


@contextlib.contextmanager
def _reporting(channel: Any) -> Any:
    """Report the tests that run in the ``with`` block, and the exit code.

    Also report fingerprints of the test framework from before and after the block.
    """
    say, nonce, sign, order = channel.say, channel.nonce, signer(), channel.order
    hook = _hook_collection if order.get("collect") else _hook
    before = {}  # type: Any
    take = fingerprinter(order["protected"], order["libraries"], order["repository"])
    hook(say, *watcher(take, before, say))
    before.update(take())
    say("start", "unittest")
    say("before", before)
    for name in [name for name in sys.modules if name.startswith("securebench_")]:
        del sys.modules[name]
    code = 1
    try:
        yield
        code = 0
    except SystemExit as request:
        code = _exit_code(request.code)
        raise
    finally:
        say("end", code)
        number = nonce()
        if number:
            say("after", sign(take(), number))


def _run_script(path: str, arguments: Any) -> None:
    """Run ``path`` as a script."""
    sys.path[0] = dirname(abspath(path))
    sys.argv = [path, *arguments]
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    main = types.ModuleType("__main__")
    main.__file__ = path
    sys.modules["__main__"] = main
    exec(code, main.__dict__)  # noqa: S102 - the program that the task names


def _run_module(arguments: Any) -> None:
    """Run the tests that ``arguments`` select, as ``python -m unittest`` does."""
    sys.path[0] = getcwd()
    sys.argv = ["python -m unittest", *arguments]
    sys.modules["__main__"] = types.ModuleType("__main__")
    unittest.main(module=None)


def _exit_code(request: Any) -> int:
    """Return the exit code of a process that calls ``sys.exit(request)``."""
    if request is None:
        return 0
    return request & 0xFF if isinstance(request, int) else 1


if __name__ == "__main__":
    with _reporting(open_channel()):
        if sys.argv[1] == "script":
            _run_script(sys.argv[2], sys.argv[3:])
        else:
            _run_module(sys.argv[2:])
