"""Measure the time and processor time of a process with its descendants, and of the whole machine."""

from __future__ import annotations

import os
import platform
import resource
import select
import subprocess
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_SAMPLE_SECONDS = 0.05
_TICKS = os.sysconf("SC_CLK_TCK")
_BUSY = (0, 1, 2, 5, 6)
"""The columns of ``/proc/stat`` that count as work: user, nice, system, and both kinds of interrupts."""


@dataclass(slots=True)
class Cost:
    """Seconds that passed (``wall``), and processor seconds of the measured processes (``cpu``) and of the ``machine``.

    ``peak_mib`` is the peak memory of the process without its children; 0 unless :func:`run_measured` started it.
    """

    wall: float = 0.0
    cpu: float = 0.0
    machine: float = 0.0
    peak_mib: float = 0.0


@contextmanager
def measured() -> Iterator[Cost]:
    """Yield the cost of this process and of all children that it waits for. The values are set when the block ends."""
    cost = Cost(-time.perf_counter(), -_own_cpu(), -_machine_cpu())
    yield cost
    cost.wall += time.perf_counter()
    cost.cpu += _own_cpu()
    cost.machine += _machine_cpu()


def run_measured(argv: Sequence[str]) -> tuple[Cost, str]:
    """Run ``argv``. Return its cost, including its children's, and its stdout. Raises ``SystemExit`` if it fails."""
    cost = Cost(-time.perf_counter(), 0.0, -_machine_cpu())
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        while not select.select([process.stdout], [], [], _SAMPLE_SECONDS)[0]:  # the process prints only at its end
            cost.peak_mib = memory_mib(process.pid, peak=True) or cost.peak_mib
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(
            f"{argv[0]} exited with code {process.returncode}, so the figures would be meaningless:\n{output}"
        )
    cost.wall += time.perf_counter()
    cost.cpu = usage.ru_utime + usage.ru_stime
    cost.machine += _machine_cpu()
    return cost, output


def memory_mib(process: int | str, *, peak: bool = False) -> float:
    """Return the resident memory of a process in MiB, or its ``peak``. Return 0 if the process has ended.

    The peak is not ``ru_maxrss``, because a process inherits that value from its parent. A small process that a large
    process started would therefore appear to be large.
    """
    name = "VmHWM:" if peak else "VmRSS:"
    with suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith(name):
                return int(line.split()[1]) / 1024
    return 0.0


def _own_cpu() -> float:
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _machine_cpu() -> float:
    fields = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
    return sum(int(fields[column]) for column in _BUSY) / _TICKS


def machine() -> str:
    """Return the date of a measurement, the machine, and how busy it was, in one line."""
    system = platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    kernel = platform.release().partition("-")[0]
    load = f"load average {os.getloadavg()[0]:.1f}"
    return f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, {system}, Linux {kernel}, {load}"


def descendants(process: int | str) -> list[str]:
    """Return the ids of the children of ``process``, of their children, and so on."""
    try:
        children = " ".join(file.read_text() for file in Path(f"/proc/{process}/task").glob("*/children")).split()
    except OSError:  # the process has exited
        return []
    return children + [each for child in children for each in descendants(child)]
