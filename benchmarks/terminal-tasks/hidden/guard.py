"""Protect the checkers of this pack from the candidate's programs, and run these programs with limits.

A checker exits with 0, or with a code that says what was wrong. Its output is not recorded.
"""

import ctypes
import os
import signal
import stat
import subprocess
import sys
import tempfile

NOT_THERE = 10
CRASHED = 11
WRONG = 12
RULE_BROKEN = 13

_PR_SET_DUMPABLE = 4
_LIMIT = 1 << 20

# A program of the candidate runs as the checker's user. Without this, it could trace the checker or change its memory.
if ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
    sys.exit(99)


def require(condition, code=WRONG):
    """Exit with ``code`` unless ``condition`` is true."""
    if not condition:
        sys.exit(code)


def read(path, limit=_LIMIT):
    """Return the content of a regular file of at most ``limit`` bytes. Symbolic links are refused."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        sys.exit(NOT_THERE)
    with os.fdopen(descriptor, "rb") as file:
        require(stat.S_ISREG(os.fstat(descriptor).st_mode), NOT_THERE)
        data = file.read(limit + 1)
    require(len(data) <= limit)
    return data


def run(argv, data=b"", seconds=10.0, cwd="."):
    """Run a program of the candidate and return its stdout. Exit unless it succeeds within ``seconds``."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as printed:
        given.write(data)
        given.seek(0)
        process = start(argv, given, printed, cwd)
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            sys.exit(CRASHED)
        finally:
            stop(process)
        require(code == 0, CRASHED)
        printed.seek(0)
        output = printed.read(_LIMIT + 1)
    require(len(output) <= _LIMIT)
    return output


def start(argv, stdin, stdout, cwd="."):
    """Start a program of the candidate in a new session, without the checker's environment variables."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "LANG": "C.UTF-8"}
    try:
        return subprocess.Popen(
            argv,
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.DEVNULL,
            cwd=cwd,
            env=environment,
            start_new_session=True,
        )
    except OSError:
        sys.exit(NOT_THERE)


def stop(process):
    """Kill a program and the other processes of its process group."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except OSError:
        pass
    process.wait()
