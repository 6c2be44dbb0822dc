"""The hook that injects one fault into a run or one of its child processes. It logs each fault point they pass.

Supervised child processes also import this module. They have only the standard library and SecureBench.
"""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import threading
import time
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from securebench import faults
from securebench.errors import InfrastructureError
from securebench.faults import FaultPoint

TESTS = Path(__file__).resolve().parents[1]
DELAY_SECONDS = 0.7
FIRED = "fired"
"""The line in a log that shows that the fault was injected."""

_FAULTLESS = frozenset({FaultPoint.SANDBOX_CLOSE, FaultPoint.CONTAINER_REPORT})
"""Points at which no error is injected.

Closing a sandbox must never fail. Sending a report fails only if its receiver is dead.
"""
_OWN_ERRORS = ("run.", "sandbox.", "image.")
"""Prefixes of points that raise SecureBench's own errors. All others are calls of the kernel or of a library."""


class FaultKind(StrEnum):
    """The kind of a fault: what happens at its point."""

    KILL = "kill"
    ERROR = "error"
    DELAY = "delay"


@dataclass(frozen=True)
class Fault:
    """A fault that happens the ``number``-th time that a process passes ``point`` with the label ``subject``."""

    point: str
    subject: str
    number: int
    kind: str

    def __str__(self) -> str:
        subject = f"({self.subject})" if self.subject else ""
        return f"{self.point}{subject}#{self.number}-{self.kind}"

    @property
    def is_possible(self) -> bool:
        """Whether a fault of this kind can happen at this point."""
        return self.kind != FaultKind.ERROR or self.point not in _FAULTLESS


def label(point: str, subject: str) -> str:
    """Return the label under which the tables of docs/reference/faults.md list ``subject``.

    The label of a path in the run directory is its first part below that directory. Any other absolute path has the
    label ``elsewhere``. In other subjects, digests become ``ID``, and the query of a request is removed. The label of
    a task is empty.
    """
    if point.startswith("run."):
        return ""
    _, inside, rest = subject.partition("/results")
    if inside:
        return rest.strip("/").partition("/")[0] or "."
    if subject.startswith("/"):
        return "elsewhere"
    return re.sub(r"(sha256:)?[0-9a-f]{64}", "ID", subject).partition("?")[0]


class Hook:
    """A hook that injects ``fault``, if any. In a new file in ``logs``, it logs the points that this process passes."""

    def __init__(self, fault: Fault | None, logs: Path) -> None:
        self._fault = fault
        self._left = fault.number if fault else 0
        self._lock = threading.Lock()
        # Open the log now: the gateway cannot open files later.
        self._log = os.open(logs / str(time.monotonic_ns()), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)

    def __call__(self, point: FaultPoint, subject: str) -> None:
        """Log that the process passes ``point``, and inject the fault if it is due."""
        found = label(point, subject)
        os.write(self._log, f"{point}\t{found}\n".encode())
        fault = self._fault
        if fault is None or (point, found) != (fault.point, fault.subject):
            return
        with self._lock:
            self._left -= 1
            if self._left != 0:
                return
        os.write(self._log, f"{FIRED}\t\n".encode())
        _happen(fault)


def _happen(fault: Fault) -> None:
    match fault.kind:
        case FaultKind.KILL:
            os.kill(os.getpid(), signal.SIGKILL)
            os._exit(137)  # the supervisor is the first process of a pid namespace and cannot kill itself
        case FaultKind.DELAY:
            time.sleep(DELAY_SECONDS)
        case _ if fault.point.startswith(_OWN_ERRORS):
            raise InfrastructureError("injected by a test")
        case _:
            number = errno.ENOSPC if fault.point.startswith(("file.", "tree.")) else errno.EIO
            raise OSError(number, os.strerror(number))


def install(fault: Fault | None, logs: Path) -> None:
    """Install a hook for ``fault`` in this process and in its supervised children."""
    text = json.dumps([asdict(fault) if fault else None, str(logs)])
    paths = [str(TESTS), str(TESTS.parent / "src")]
    code = f"import sys; sys.path += {paths!r}; from faults.hook import install_from; install_from({text!r})\n"
    faults.install(Hook(fault, logs), code)


def install_from(text: str) -> None:
    """Install the hook that another process describes as JSON: the fault or null, and the directory of the logs."""
    fault, logs = json.loads(text)
    install(Fault(**fault) if fault else None, Path(logs))
