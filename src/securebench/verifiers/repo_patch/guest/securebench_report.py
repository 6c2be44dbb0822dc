"""A plugin of pytest that tells the host what became of each test, on a channel of its own.

The channel is what stdout was when pytest started. From then on stdout is stderr, and nothing that tests print, or
programs that they start, comes to the channel. Each line begins with a mark that the host sent over stdin. This keeps
out whoever writes blindly; code in the same process can do whatever this plugin can, which is what the host's other
evidence is for.
"""

import fcntl
import json
import os
import random
from typing import Any

import pytest

_CHANNEL = 500
"""The lowest number that the channel's descriptor may have: programs close the low ones when they become daemons."""
_LONGEST_ID = 16000


class Reporter:
    """Hears of each test, and says so."""

    def __init__(self, descriptor: int, order: Any) -> None:
        """Report to ``descriptor``, as the host's ``order`` has it."""
        self._descriptor = descriptor
        self._mark = order["mark"]
        self._extra = order["files"]
        self._names = {path.rsplit("/", 1)[-1] for path in order["files"]}
        self._count = 0
        self._process = os.getpid()
        self._raised: Any = {}
        self._may_fail: Any = set()

    def say(self, *words: Any) -> None:
        """Send one line to the host. A process that a test has forked says nothing."""
        if os.getpid() != self._process:
            return
        data = f"{self._mark} {self._count} {json.dumps(words)}\n".encode("ascii")
        self._count += 1
        while data:
            data = data[os.write(self._descriptor, data) :]

    def prepare(self, config: Any) -> None:
        """Run everything that there is to run, in this process, and the host's own tests with it."""
        config.args.extend(self._extra)
        config.option.maxfail = 0
        config.option.continue_on_collection_errors = True
        self.say("start", pytest.__version__)

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: Any) -> Any:
        """Keep the host's tests, whatever the command or a plugin leaves out."""
        mine = [item for item in items if item.nodeid.split("::")[0].rsplit("/", 1)[-1] in self._names]
        yield
        left = {id(item) for item in items}
        for item in mine:
            if id(item) not in left:
                items.insert(random.randint(0, len(items)), item)  # noqa: S311 - any place will do

    def pytest_collectreport(self, report: Any) -> None:
        """Say which file could not be loaded."""
        if report.failed:
            self.say("unloaded", report.nodeid[:_LONGEST_ID])

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
            self.say("test", report.nodeid[:_LONGEST_ID], outcome)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, exitstatus: Any) -> None:
        """Say how pytest is about to end."""
        self.say("end", int(exitstatus))


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
    order = b""
    while not order.endswith(b"\n"):
        piece = os.read(0, 65536)
        if not piece:
            return None
        order += piece
    channel = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, _CHANNEL)
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return Reporter(channel, json.loads(order.decode("ascii")))


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
