"""Runs SymPy's test files by the rules of ``bin/test``, and reports each function's outcome.

``bin/test`` and its modules are in the repository, so a candidate may have changed them. This runner collects and runs
the same functions without them: see ``SymPyTests.test_file`` in ``sympy/testing/runtests.py``. The decorators are those
of the repository's ``sympy/testing/pytest.py``, in the task's version. All functions used later are bound in closures
before code of the repository is loaded, so that the repository's code cannot find them by a name.
"""

import inspect
import os
import random
import sys
import traceback
import types
import warnings
from fnmatch import fnmatch
from typing import Any

from securebench_channel import open_channel, signer  # type: ignore[import-not-found] # beside this file
from securebench_fingerprint import fingerprinter, watcher  # type: ignore[import-not-found] # as above

_SEED = 20220407


def _selected(top: str, paths: Any) -> Any:
    """Return the test files below ``sympy/`` selected by ``paths``, in the order of ``bin/test``."""
    found = []
    for directory, _, names in os.walk(os.path.join(top, "sympy")):
        found += [os.path.join(directory, name) for name in names if fnmatch(name, "test_*.py")]
    return [
        path
        for path in sorted(found)
        if not paths or any(part in path or fnmatch(os.path.basename(path), part) for part in paths)
    ]


def _load(path: str) -> Any:
    """Compile a test file. Return ``None`` if that fails."""
    try:
        with open(path, encoding="utf8") as file:
            return compile(file.read(), path, "exec", flags=0, dont_inherit=True)
    except (SyntaxError, ValueError, OSError):
        traceback.print_exc()
        return None


def _collector(slow: bool) -> Any:
    """Return a function that finds tests (if ``slow``, only slow ones) in an executed module's names."""
    unwrap, is_function, is_method = inspect.unwrap, inspect.isfunction, inspect.ismethod
    is_generator = inspect.isgeneratorfunction

    def collect(path: str, names: Any) -> Any:
        """Return the name and function of each test in the file, in line order.

        The tests that a generator yields are listed in place of the generator, under its name.
        """
        found = []
        for name, value in list(names.items()):
            if name.startswith("test_") and (is_function(value) or is_method(value)):
                code = unwrap(value).__code__
                if code.co_filename == path and (not slow or getattr(value, "_slow", False)):
                    found.append((code.co_firstlineno, name, value))
        found.sort(key=lambda each: each[0])
        calls = []  # type: Any
        for _, name, value in found:
            if is_generator(value):
                calls += [(name, lambda parts=parts: parts[0](*parts[1:])) for parts in value()]
            else:
                calls.append((name, value))
        return tuple(calls)  # immutable: code under test may find it in a frame

    return collect


def _runner(slow: bool) -> Any:
    """Return a function that runs one test and returns its outcome."""
    catch, filter_warnings, seed, show = (
        warnings.catch_warnings,
        warnings.filterwarnings,
        random.seed,
        traceback.print_exc,
    )

    def of_exception(error: BaseException) -> str:
        """Return the outcome for an exception. Exceptions of SymPy are recognized by class name.

        An expected failure is not a pass: code under test can raise such an exception.
        """
        kind = type(error).__name__
        if isinstance(error, Exception) and kind in ("Skipped", "XFail", "XPass"):
            return "skipped"
        show()
        return "failed" if isinstance(error, AssertionError) or kind == "Failed" else "error"

    def run(function: Any) -> str:
        if getattr(function, "_slow", False) and not slow:
            return "skipped"
        outcome = "error"
        with catch():
            filter_warnings("error", ".*", DeprecationWarning, module="sympy.*")
            seed(_SEED)
            try:  # inside the context manager, because leaving it may change the exception
                function()
                outcome = "passed"
            except BaseException as error:
                outcome = of_exception(error)
        return outcome

    return run


def _run(files: Any, top: str, slow: bool, say: Any, only_collect: bool, watch: Any) -> bool:
    """Run, or only collect, the tests of compiled files. Return whether all files loaded and no test failed."""
    choose, look = watch
    collect, run, execute, relative, show = _collector(slow), _runner(slow), exec, os.path.relpath, traceback.print_exc
    good = True
    for path, code in files:
        names = {"__file__": path}
        try:
            from sympy.core.cache import clear_cache  # type: ignore[import-not-found] # the repository's

            execute(code, names)
            clear_cache()
            functions = () if names.get("disabled", False) else collect(path, names)
        except BaseException:
            show()
            say("unloaded", relative(path, top))
            good = False
            continue
        choose([((path, name), name) for name, _ in functions], len(files))
        for name, function in functions:
            if only_collect:
                say("collected", relative(path, top) + "::" + name)
                continue
            look((path, name))
            outcome = run(function)
            good = good and outcome not in ("failed", "error")
            say("test", relative(path, top) + "::" + name, outcome)
    return good


def main() -> int:
    """Run the tests that this program's arguments select, or only report their names. Returns the exit code."""
    channel = open_channel()
    say, nonce, sign, order = channel.say, channel.nonce, signer(), channel.order
    take = fingerprinter(order["protected"], order["libraries"], order["repository"])
    before = take()
    watch = watcher(take, before, say)
    say("start", "sympy")
    say("before", before)
    options = [word for word in sys.argv[1:] if word.startswith("-")]
    paths = [word for word in sys.argv[1:] if not word.startswith("-")]
    if "-C" in options or "--no-cache" in options:
        os.environ["SYMPY_USE_CACHE"] = "no"
    top = os.getcwd()
    files = tuple([(path, _load(path)) for path in _selected(top, paths)])
    sys.path[0] = top
    sys.argv = [os.path.join(top, "bin", "test"), *sys.argv[1:]]
    sys.modules["__main__"] = types.ModuleType("__main__")
    for name in [name for name in sys.modules if name.startswith("securebench_")]:
        del sys.modules[name]
    code = 0 if _run(files, top, "--slow" in options, say, bool(order.get("collect")), watch) else 1
    say("end", code)
    number = nonce()
    if number:
        say("after", sign(take(), number))
    return code


if __name__ == "__main__":
    sys.exit(main())
