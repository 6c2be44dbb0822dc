"""The hook that brings about one fault, in the run or in a child of it, and notes every point that is passed.

It is imported by supervised children too, which have the standard library and SecureBench only.
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
"""The line of a log that says that the fault was brought about."""

_FAULTLESS = frozenset({FaultPoint.SANDBOX_CLOSE, FaultPoint.CONTAINER_REPORT})
"""Points at which nothing can raise: closing must never fail, and a report that cannot be sent is a dead peer."""
_OWN_ERRORS = ("run.", "sandbox.", "image.")
"""Points of our own code, where only our own errors are raised. All others are calls of the kernel or of a library."""


class FaultKind(StrEnum):
    """What happens at a point."""

    KILL = "kill"
    ERROR = "error"
    DELAY = "delay"


@dataclass(frozen=True)
class Fault:
    """One fault: at the ``number``-th time that a process passes ``point`` with the label ``subject``."""

    point: str
    subject: str
    number: int
    kind: str

    def __str__(self) -> str:
        subject = f"({self.subject})" if self.subject else ""
        return f"{self.point}{subject}#{self.number}-{self.kind}"

    @property
    def is_possible(self) -> bool:
        """Whether such a fault exists at this point."""
        return self.kind != FaultKind.ERROR or self.point not in _FAULTLESS


def label(point: str, subject: str) -> str:
    """Return what a subject is in the table: a path as its place in the run directory, nothing for a task."""
    if point.startswith("run."):
        return ""
    _, inside, rest = subject.partition("/results")
    if inside:
        return rest.strip("/").partition("/")[0] or "."
    if subject.startswith("/"):
        return "elsewhere"
    return re.sub(r"(sha256:)?[0-9a-f]{64}", "ID", subject).partition("?")[0]


class Hook:
    """Brings about ``fault``, if one is given, and logs what it sees to a file of this process in ``logs``."""

    def __init__(self, fault: Fault | None, logs: Path) -> None:
        self._fault = fault
        self._left = fault.number if fault else 0
        self._lock = threading.Lock()
        # Opened now: the gateway cannot open files later.
        self._log = os.open(logs / str(time.monotonic_ns()), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)

    def __call__(self, point: FaultPoint, subject: str) -> None:
        """Pass a point."""
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
            os._exit(137)  # the first process of a pid namespace, as the supervisor is, cannot kill itself
        case FaultKind.DELAY:
            time.sleep(DELAY_SECONDS)
        case _ if fault.point.startswith(_OWN_ERRORS):
            raise InfrastructureError("injected by a test")
        case _:
            number = errno.ENOSPC if fault.point.startswith(("file.", "tree.")) else errno.EIO
            raise OSError(number, os.strerror(number))


def install(fault: Fault | None, logs: Path) -> None:
    """Install the hook in this process and in its supervised children."""
    text = json.dumps([asdict(fault) if fault else None, str(logs)])
    paths = [str(TESTS), str(TESTS.parent / "src")]
    code = f"import sys; sys.path += {paths!r}; from faults.hook import install_from; install_from({text!r})\n"
    faults.install(Hook(fault, logs), code)


def install_from(text: str) -> None:
    """Install the hook that another process describes."""
    fault, logs = json.loads(text)
    install(Fault(**fault) if fault else None, Path(logs))
