"""Run a part of a test as an ordinary user, even if root runs the tests."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tempfile
import traceback
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ORDINARY_USER = 12345
_IMPORTED_LATE = ("encodings.ascii", "encodings.idna", "securebench.images.build.registry_base")
"""Modules that would be imported, with their dependencies, only when they are first used. That is too late for a user
who cannot enter the home directory that contains the interpreter."""


@contextmanager
def open_directory() -> Iterator[Path]:
    """Yield a temporary directory that the ordinary user owns, and remove it with everything in it."""
    path = Path(tempfile.mkdtemp(prefix="securebench-user-"))
    if os.getuid() == 0:
        os.chown(path, ORDINARY_USER, ORDINARY_USER)
    try:
        yield path
    finally:
        # Not shutil.rmtree: it cannot remove directories without permissions, or very deep ones.
        subprocess.run(["/bin/sh", "-c", 'chmod -R u+rwX "$1"; rm -rf "$1"', "sh", str(path)], check=True)


def as_ordinary_user(function: Callable[[], None], *groups: int) -> None:
    """Call ``function`` in a child process of an ordinary user, and fail if it raises. Its traceback goes to stderr.

    If root runs the tests, the child runs as ``ORDINARY_USER`` with the supplementary ``groups``. Changes that
    ``function`` makes to its process, such as its environment, do not affect the tests.
    """
    for name in _IMPORTED_LATE:
        importlib.import_module(name)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # the child does little, and needs no lock that another thread may hold
        child = os.fork()
    if child == 0:
        status = 1
        try:
            if os.getuid() == 0:
                os.setgroups(groups)
                os.setgid(ORDINARY_USER)
                os.setuid(ORDINARY_USER)
            function()
            status = 0
        except BaseException:  # noqa: BLE001 - the child must never return into the test run
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, "it failed as an ordinary user: see stderr"
