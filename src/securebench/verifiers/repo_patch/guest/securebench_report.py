"""A plugin of pytest that tells the host what became of each test, on a channel of its own."""

import os
from hashlib import sha256
from typing import Any

import pytest
from securebench_channel import LONGEST_ID, open_channel  # type: ignore[import-not-found] # beside this file


class Reporter:
    """Hears of each test, and says so."""

    def __init__(self, channel: Any) -> None:
        """Report to ``channel``."""
        self._say = channel.say
        self._nonce = channel.nonce
        self._keep = set(channel.order["keep"])
        self._raised: Any = {}
        self._may_fail: Any = set()

    def prepare(self, config: Any) -> None:
        """Run everything that there is to run, in this process."""
        config.option.maxfail = 0
        config.option.continue_on_collection_errors = True
        self._say("start", pytest.__version__)

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: Any) -> Any:
        """Keep the host's tests where a command selects single tests: each stays where its file has it."""
        before = _with_kept(items, self._keep) if self._keep else list(items)
        yield
        left = {id(item) for item in items}
        if self._keep:
            items[:] = [item for item in before if id(item) in left or _is_kept(item, self._keep)]

    def pytest_collectreport(self, report: Any) -> None:
        """Say which file could not be loaded."""
        if report.failed:
            self._say("unloaded", report.nodeid[:LONGEST_ID])

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: Any) -> Any:
        """See what a test raised, before anybody makes a report of it."""
        outcome = yield
        of_unittest = getattr(getattr(item, "obj", None), "__unittest_expecting_failure__", False)
        if of_unittest or item.get_closest_marker("xfail") is not None:
            self._may_fail.add(item.nodeid)
        if outcome.excinfo is not None:
            self._raised[item.nodeid] = outcome.excinfo[0].__name__

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: Any) -> None:
        """Say what became of a test: of its set-up and tear-down only if they went wrong."""
        outcome = _outcome(report, self._raised, self._may_fail)
        if outcome:
            self._say("test", report.nodeid[:LONGEST_ID], outcome)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, exitstatus: Any) -> None:
        """Say how pytest is about to end."""
        self._say("end", int(exitstatus))


def _name(item: Any) -> Any:
    return item.name.partition("[")[0]


def _is_kept(item: Any, keep: Any) -> bool:
    return sha256(_name(item).encode("utf-8", "surrogateescape")).hexdigest() in keep


def _with_kept(items: Any, keep: Any) -> Any:
    """Return ``items``, and the host's tests of the same files and classes that a node id leaves out."""
    found, known, parents = [], {item.nodeid for item in items}, set()
    for item in items:
        found.append(item)
        if item.parent.nodeid in parents or not hasattr(item, "function"):
            continue
        parents.add(item.parent.nodeid)
        others = (other for other in item.parent.collect() if hasattr(other, "function") and _is_kept(other, keep))
        found.extend(other for other in others if other.nodeid not in known)
    return found


def _outcome(report: Any, raised: Any, may_fail: Any) -> str:
    expected = hasattr(report, "wasxfail")
    if report.when != "call":
        if report.passed:
            return ""
        return "skipped" if report.skipped else "error"
    error = raised.pop(report.nodeid, None)
    if report.passed:
        if error is not None and not expected:
            return "contradicted"
        return "xpassed" if expected else "passed"
    if report.skipped:
        return "xfailed" if expected and report.nodeid in may_fail and error != "XFailed" else "skipped"
    return "failed" if report.failed else ""  # anything else is no outcome: the test is run again


def _open() -> Any:
    """Return what reports to the host, or nothing in a worker of pytest-xdist, whose stdin is another's."""
    os.environ.pop("PYTHONPATH", None)
    if "PYTEST_XDIST_WORKER" in os.environ:
        return None
    channel = open_channel()
    return None if channel is None else Reporter(channel)


_REPORTER = _open()


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: Any) -> None:
    """Keep pytest-xdist from running tests in other processes: their outcomes would be hearsay."""
    if _REPORTER is not None and hasattr(config.option, "numprocesses"):
        config.option.numprocesses = 0
        config.option.dist = "no"
        config.option.tx = []


def pytest_configure(config: Any) -> None:
    """Take part in this run."""
    if _REPORTER is not None:
        config.pluginmanager.register(_REPORTER)
        _REPORTER.prepare(config)
