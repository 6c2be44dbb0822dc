"""The owner of a resource: the process that created it. Later runs check whether the owner is still running."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_PROC = Path("/proc")
_START_TIME_FIELD = 19
"""The index of the start time in ``/proc/PID/stat``, counted from the state, which follows the program's name."""


@dataclass(frozen=True, slots=True)
class Owner:
    """A process. Because pids are reused, it is identified by its start time, pid namespace and boot id as well."""

    boot: str
    namespace: str
    pid: int
    start: str

    @classmethod
    def current(cls) -> Owner:
        """Return this process as an owner."""
        pid = os.getpid()
        return cls(_boot_id(), _pid_namespace(), pid, _start_time(pid) or "")

    @classmethod
    def parse(cls, label: str) -> Owner | None:
        """Return the owner in ``label``, or ``None`` if the text is not in the format of :meth:`label`."""
        parts = label.split("/")
        if len(parts) != len(cls.__slots__) or not parts[2].isascii() or not parts[2].isdigit():
            return None
        return cls(parts[0], parts[1], int(parts[2]), parts[3])

    def label(self) -> str:
        """Return this owner as text that :meth:`parse` can read, for example as a container's label."""
        return f"{self.boot}/{self.namespace}/{self.pid}/{self.start}"

    def is_of_this_boot(self) -> bool:
        """Whether the owner started since this machine booted. No process of an earlier boot is still running."""
        return self.boot == _boot_id()

    def can_be_judged(self) -> bool:
        """Whether this process can tell if the owner is running.

        The owner must have started since this machine booted, in the pid namespace of this process.
        """
        return (self.boot, self.namespace) == (_boot_id(), _pid_namespace())

    def is_alive(self) -> bool:
        """Whether the owner is still running, or ``True`` if this is uncertain.

        Only call this if :meth:`can_be_judged` is true.
        """
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass  # the process exists but belongs to another user
        return _start_time(self.pid) in {self.start, None}


def _start_time(pid: int) -> str | None:
    try:
        stat = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    # A zombie keeps its pid until its parent waits for it, but it is no longer running.
    return "" if fields[0] in {"Z", "X"} else fields[_START_TIME_FIELD]


@cache
def _boot_id() -> str:
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


@cache
def _pid_namespace() -> str:
    return str((_PROC / "self/ns/pid").stat().st_ino)
