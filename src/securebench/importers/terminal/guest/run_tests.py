"""Run a task's tests with pytest and exit with the verdict: 0 if all expected tests ran, some passed and none failed.

It runs in the verifier's sandbox, next to programs of the candidate that the tests start. It protects itself from
them: ``PR_SET_DUMPABLE`` 0 lets no process of the same user trace it, write its memory or open its descriptors. The
tests run in a child process. Its parent trusts only a complete report with a token that only parent and child know. A
child that ends without this report has failed, whatever its exit code. No file with results is read.

It supports Python 3.6 and later, and reads ``plan.json`` beside it: ``tests`` (paths), ``root`` (their directory),
``expected`` (names that must be reported), ``site`` (the directory with pytest).
"""

import ctypes
import json
import os
import select
import sys
from typing import Any, Dict, Tuple

PR_SET_DUMPABLE = 4
MAX_REPORT = 16 * 1024 * 1024
HERE = os.path.dirname(os.path.abspath(__file__))
FAILED = 1
UNFIT = 3


def main() -> int:
    """Return the exit code: 0 passed, 1 failed, 3 if the tests cannot be run at all."""
    with open(os.path.join(HERE, "plan.json"), encoding="utf-8") as file:
        plan = json.load(file)
    if not _out_of_reach():
        return _say("this system cannot protect the test runner from other processes", UNFIT)
    word = os.urandom(16).hex()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os._exit(_run(plan, word, writing))
    os.close(writing)
    data, status = _wait(child, reading)
    return _judge(data, status, word, plan)


def _out_of_reach() -> bool:
    try:
        return bool(ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def _run(plan: Dict[str, Any], word: str, writing: int) -> int:
    """Run pytest in the child, report the outcomes and return pytest's exit code."""
    sys.dont_write_bytecode = True
    sys.path.insert(0, os.path.join(HERE, plan["site"]))
    tests = [os.path.join(HERE, path) for path in plan["tests"]]
    root = os.path.join(HERE, plan["root"])
    # These variables are not set in the authors' harness either. Without them, a program of the candidate that a test
    # starts can import modules from the program's own directory.
    for name in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTHONSAFEPATH", "PYTHONPATH"):
        os.environ.pop(name, None)
    import pytest

    outcomes: Dict[str, str] = {}

    class Recorder:
        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.when == "call" or report.outcome != "passed":
                known = outcomes.get(report.nodeid)
                outcomes[report.nodeid] = "failed" if "failed" in (known, report.outcome) else report.outcome

    # pytest must not read a conftest.py or an ini file that the candidate left in the working directory.
    options = ["--rootdir", root, "--confcutdir", root, "-c", _configuration(root), "-p", "no:cacheprovider", "-rA"]
    code = int(pytest.main([*options, *tests], plugins=[Recorder()]))
    sys.stdout.flush()
    report = json.dumps({"word": word, "code": code, "outcomes": outcomes}).encode()
    while report:
        report = report[os.write(writing, report) :]
    return code


def _configuration(root: str) -> str:
    own = os.path.join(root, "pytest.ini")
    return own if os.path.exists(own) else os.path.join(HERE, "empty.ini")


def _wait(child: int, reading: int) -> Tuple[bytes, int]:
    """Return the child's report and its wait status. Do not wait for descendants that keep the pipe open."""
    data = b""
    ended, status = 0, 0
    while True:
        if not ended:
            ended, status = os.waitpid(child, os.WNOHANG)
        ready, _, _ = select.select([reading], [], [], 0 if ended else 0.05)
        part = os.read(reading, 65536) if ready else b""
        data += part
        if len(data) > MAX_REPORT or (ended and not part):
            return data, status
        if ready and not part:
            return data, status if ended else os.waitpid(child, 0)[1]


def _judge(data: bytes, status: int, word: str, plan: Dict[str, Any]) -> int:
    """Return 0 if pytest succeeded, a test passed, none failed, and every expected one was reported; otherwise 1."""
    try:
        report = json.loads(data.decode("utf-8"))
    except ValueError:
        return _say("the tests ended without a report", FAILED)
    if not isinstance(report, dict) or report.get("word") != word:
        return _say("the report does not come from the tests", FAILED)
    outcomes = report["outcomes"]
    names = {node.split("::", 1)[-1].split("[")[0] for node in outcomes}
    missing = sorted(set(plan["expected"]) - names)
    if missing:
        return _say("these tests were not run: " + ", ".join(missing), FAILED)
    passed = sum(outcome == "passed" for outcome in outcomes.values())
    if status != 0 or report["code"] != 0 or passed == 0 or "failed" in outcomes.values():
        return _say("%d of %d tests passed" % (passed, len(outcomes)), FAILED)
    return _say("%d tests passed" % passed, 0)


def _say(text: str, code: int) -> int:
    sys.stderr.write("securebench: " + text + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
