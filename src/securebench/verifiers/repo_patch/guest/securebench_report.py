"""A pytest plugin that reports each test's outcome to the host, on a separate channel."""

import os
import sys
from hashlib import sha256
from typing import Any

import pytest
from securebench_channel import LONGEST_ID, open_channel, signer  # type: ignore[import-not-found] # beside this file
from securebench_fingerprint import (  # type: ignore[import-not-found] # as above
    fingerprinter,
    honest,
    load,
    unload_package,
    watcher,
)

_RUNNING = "running"
"""The entry of a test in ``calls`` while it runs. Afterwards, the entry is the result of ``_error``."""


def reporter(channel: Any) -> Any:  # noqa: C901 - all hooks are closures of this one function
    """Return a plugin that reports each test to ``channel``.

    The state is in closures of the hooks, not in attributes, so that other modules cannot find it by a name.
    """
    say, nonce, sign, order = channel.say, channel.nonce, signer(), channel.order
    load(order["protected"])  # before the next line, because newer versions of pytest load unittest
    unloaded, is_loaded = {}, "unittest" in sys.modules  # type: Any, Any
    take = fingerprinter(order["protected"], order["libraries"], order["repository"], unloaded)
    stop_reusing, is_case = None if is_loaded else unload_package("unittest", unloaded), _is_case
    keep = set(order["keep"])
    known, calls, current, before = {}, {}, [], take()  # type: Any, Any, Any, Any
    running, outcome_of, allow, marked, error_of = _RUNNING, _outcome, honest, _may_fail, _error
    choose, look = watcher(take, before, say)

    class Plugin:
        """Hooks of pytest."""

        def begin(self) -> None:
            """Send the first fingerprint.

            The fingerprint was taken when the reporter was made. If no code of the repository is loaded yet, update the
            fingerprint first, so that it includes changes by plugins.
            """
            own = order["repository"].rstrip("/") + "/"
            files = [getattr(module, "__file__", None) or "" for module in list(sys.modules.values())]
            if not any(str(file).startswith(own) for file in files):
                before.update(take())
            say("start", pytest.__version__)
            say("before", before)

        def pytest_configure(self, config: Any) -> None:
            """Make pytest continue after failures and collection errors."""
            config.option.maxfail = 0
            config.option.continue_on_collection_errors = True

        @pytest.hookimpl(hookwrapper=True, tryfirst=True)
        def pytest_collection_modifyitems(self, items: Any) -> Any:
            """Keep the controls, in file order, if the command selects single tests."""
            every = _with_kept(items, keep) if keep else list(items)
            yield
            left = {id(item) for item in items}
            if keep:
                items[:] = [item for item in every if id(item) in left or _is_kept(item, keep)]

        def pytest_collectreport(self, report: Any) -> None:
            """Report a file that could not be loaded."""
            if report.failed:
                say("unloaded", report.nodeid[:LONGEST_ID])

        @pytest.hookimpl(tryfirst=True)
        def pytest_collection_finish(self, session: Any) -> None:
            """Record each test's id and whether it may fail. Report the ids if the host's instructions ask for them."""
            # Later changes to the items have no effect. A reference to each item keeps its id() from being reused.
            for item in session.items:
                known[id(item)] = (item, item.nodeid[:LONGEST_ID], marked(item))
            if stop_reusing is not None:
                stop_reusing(any(is_case(item) for item in session.items))
            choose([(id(item), item.nodeid) for item in session.items])
            if order.get("collect"):
                for item in session.items:
                    say("collected", item.nodeid[:LONGEST_ID])

        @pytest.hookimpl(tryfirst=True)
        def pytest_runtest_setup(self, item: Any) -> None:
            """Look for temporary changes before the fixtures of a test are set up."""
            look(id(item))

        @pytest.hookimpl(hookwrapper=True, tryfirst=True)
        def pytest_runtest_protocol(self, item: Any) -> Any:
            """Remember the running test, because code under test could change the test id in a report."""
            current.append(id(item))
            yield
            current.pop()

        @pytest.hookimpl(hookwrapper=True, tryfirst=True)
        def pytest_runtest_call(self, item: Any) -> Any:
            """Record what a test raised, before a report is made of it."""
            calls[id(item)] = running
            outcome = yield
            calls[id(item)] = error_of(item, outcome.excinfo)

        @pytest.hookimpl(tryfirst=True)
        def pytest_runtest_logreport(self, report: Any) -> None:
            """Report the outcome of a test, and of its set-up and tear-down if they did not pass."""
            item = current[-1] if current else None
            if item not in known:  # not a collected test
                say("test", str(report.nodeid)[:LONGEST_ID], "contradicted")
                return
            test, may_fail = known[item][1:]
            call = calls.get(item)
            if report.when == "call" and call != running:
                calls.pop(item, None)  # one call of a test explains only one report
            outcome = outcome_of(report, call, may_fail)
            if outcome:
                say("test", test, outcome)

        @pytest.hookimpl(trylast=True)
        def pytest_sessionfinish(self, exitstatus: Any) -> None:
            """Report pytest's exit status and the final fingerprint."""
            say("end", int(exitstatus))
            number = nonce()
            if number:
                say("after", sign(allow(before, take()), number))

    return Plugin()


def _name(item: Any) -> Any:
    return item.name.partition("[")[0]


def _is_kept(item: Any, keep: Any) -> bool:
    return sha256(_name(item).encode("utf-8", "surrogateescape")).hexdigest() in keep


def _with_kept(items: Any, keep: Any) -> Any:
    # ``keep`` has the digests of the names of controls. Those in the same files and classes are added to ``items``.
    found, known, parents = [], {item.nodeid for item in items}, set()
    for item in items:
        found.append(item)
        if item.parent.nodeid in parents or not hasattr(item, "function"):
            continue
        parents.add(item.parent.nodeid)
        # The node ids in the command can exclude controls, so the parent is collected again.
        others = (other for other in item.parent.collect() if hasattr(other, "function") and _is_kept(other, keep))
        found.extend(other for other in others if other.nodeid not in known)
    return found


def _is_case(item: Any) -> bool:
    """Return whether a test is a method of a unittest case."""
    return any(cls.__name__ == "TestCaseFunction" for cls in type(item).__mro__)


def _may_fail(item: Any) -> bool:
    """Return whether a test is marked as expected to fail."""
    of_unittest = getattr(getattr(item, "obj", None), "__unittest_expecting_failure__", False)
    return bool(of_unittest) or item.get_closest_marker("xfail") is not None


def _error(item: Any, excinfo: Any) -> str:
    """Return the name of the exception that the test raised, or an empty string if it raised none.

    If only the item's ``_excinfo`` contains an exception, return ``unittest`` instead of the name.
    """
    if excinfo is not None:
        return str(excinfo[0].__name__)
    return "unittest" if getattr(item, "_excinfo", None) else ""


def _outcome(report: Any, error: Any, may_fail: bool) -> str:
    """Return a report's outcome, or an empty string if the outcome is not sent to the host.

    ``error`` is ``None`` if the test was not called, ``_RUNNING`` while it runs, and then the result of ``_error``.
    """
    if report.when != "call":
        if report.passed:
            return ""
        return "skipped" if report.skipped else "error"
    expected = hasattr(report, "wasxfail")
    if report.passed:
        if error:
            return "" if error == _RUNNING else "contradicted"  # a passed part of a running test is not reported
        good = "xpassed" if expected else "passed"
        return "contradicted" if error is None else good
    if report.skipped:
        return "xfailed" if expected and may_fail and error != "XFailed" else "skipped"
    return "failed" if report.failed else ""  # another outcome means that a plugin runs the test again


def _open() -> Any:
    """Return the reporter, or ``None`` if the host sent no instructions.

    Also return ``None`` in a pytest-xdist worker, because the worker needs its stdin itself.
    """
    os.environ.pop("PYTHONPATH", None)
    if "PYTEST_XDIST_WORKER" in os.environ:
        return None
    channel = open_channel()
    return None if channel is None else reporter(channel)


_OURS = [_open()]


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: Any) -> None:
    """Run all tests in this process: results of pytest-xdist's and pytest-forked's processes are not evidence.

    Also ignore ``--stepwise``: it would stop at the first failure, and the controls must fail.
    """
    option = config.option
    if hasattr(option, "numprocesses") and "PYTEST_XDIST_WORKER" not in os.environ:
        option.numprocesses = 0
        option.dist = "no"
        option.tx = []
    for name in ("forked", "boxed", "stepwise"):
        if getattr(option, name, False):
            setattr(option, name, False)
    forking = config.pluginmanager.get_plugin("pytest_forked")
    if forking is not None:  # the plugin also forks for tests with its mark
        config.pluginmanager.unregister(forking)


@pytest.hookimpl(tryfirst=True, hookwrapper=True)
def pytest_load_initial_conftests(early_config: Any) -> Any:
    """Register the reporter before any ``conftest.py`` is loaded, and remove it from ``sys.modules``."""
    plugin = _OURS.pop() if _OURS else None
    if plugin is not None:
        early_config.pluginmanager.register(plugin)
        plugin.begin()
    for name in [name for name in sys.modules if name.startswith("securebench_")]:
        del sys.modules[name]
    yield
