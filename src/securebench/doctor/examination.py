"""Run all checks at the same time, within a time limit: a check that hangs is reported as such."""

from __future__ import annotations

import importlib
import queue
import threading
import time
from typing import TYPE_CHECKING, Final

from securebench.doctor import driver_checks, kernel_checks, place_checks
from securebench.doctor.model import Finding, Report, State
from securebench.errors import SecureBenchError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from securebench.doctor.model import Machine

SECONDS: Final = 1.4
"""The time limit in seconds for all checks together. A user should not have to wait for a check that hangs."""

SANDBOX_SECONDS: Final = 20.0
"""How many seconds longer than :data:`SECONDS` the check of the ``oci`` driver may take.

The check creates a sandbox. On a busy machine, this is slow.
"""

_GRACE: Final = 0.4
"""The other checks have at least this many seconds after the check of the ``oci`` driver has ended.

The check that chooses a driver needs this time, because it also creates a sandbox.
"""

_OCI: Final = "oci_driver"
_DRIVER: Final = "driver"

CHECKS: Final[Mapping[str, Callable[[Machine], Finding]]] = {
    "python": place_checks.python,
    "crun": driver_checks.crun,
    "runc": driver_checks.runc,
    "runsc": driver_checks.runsc,
    "init": driver_checks.init,
    "user_namespaces": kernel_checks.user_namespaces,
    "rootless_ids": kernel_checks.rootless_ids,
    "cgroups": kernel_checks.cgroups,
    "seccomp": kernel_checks.seccomp,
    "overlay": kernel_checks.overlay,
    _OCI: driver_checks.oci_driver,
    "docker_engine": driver_checks.docker_engine,
    _DRIVER: driver_checks.chosen_driver,
    "base_images": place_checks.base_images,
    "agents": place_checks.agents,
    "build_tools": place_checks.build_tools,
    "room_for_images": place_checks.room_for_images,
    "room_here": place_checks.room_here,
    "workers": place_checks.workers,
    "registry": place_checks.registry,
    "package_mirror": place_checks.package_mirror,
    "clock": place_checks.clock,
}
"""Each check by the name of its finding, in display order."""


def examine(machine: Machine, seconds: float = SECONDS) -> Report:
    """Return the findings of all checks, within ``seconds``. An exception in a check becomes its finding.

    Creating a sandbox may take :data:`SANDBOX_SECONDS` seconds longer.
    """
    # Several checks import parts of the Docker library. If two threads import packages that import each other, Python
    # breaks the deadlock by showing one thread an incomplete package, which can raise an ImportError.
    importlib.import_module("securebench.engine.client")
    done: queue.SimpleQueue[Finding] = queue.SimpleQueue()
    started = time.monotonic()
    end = started + seconds
    last = end + SANDBOX_SECONDS
    for name in CHECKS:
        # Daemon threads, so that the process can exit even if a check hangs.
        threading.Thread(target=lambda name=name: done.put(_finding(name, machine)), daemon=True).start()
    found: dict[str, Finding] = {}
    while len(found) < len(CHECKS):
        try:
            finding = done.get(timeout=max(0.0, (end if _OCI in found else last) - time.monotonic()))
        except queue.Empty:
            break
        found[finding.name] = finding
        if finding.name == _OCI:  # the check that chooses a driver should end soon after this one
            end = max(end, time.monotonic() + _GRACE)
    return _report(found, time.monotonic() - started)


def _report(found: Mapping[str, Finding], seconds: float) -> Report:
    shown = {name: found.get(name) or _silent(name, seconds) for name in CHECKS}
    if _DRIVER not in found and shown[_OCI].state is State.OK:
        shown[_DRIVER] = driver_checks.strong_driver()
    driver = shown[_DRIVER]
    taken = driver.found.split()[0] if driver.state is not State.MISSING else ""
    if not taken and shown[_OCI].state is State.WEAKER:
        shown[_DRIVER] = driver_checks.weaker_driver(shown[_OCI])
    return Report(tuple(shown.values()), taken, shown[_DRIVER].state is not State.MISSING)


def _finding(name: str, machine: Machine) -> Finding:
    try:
        return CHECKS[name](machine)
    except SecureBenchError as error:
        return Finding(name, State.MISSING, error.message, fix=error.hint)
    except Exception as error:  # noqa: BLE001 - the other checks are still useful
        return Finding(name, State.MISSING, f"the check failed: {type(error).__name__}: {error}")


def _silent(name: str, seconds: float) -> Finding:
    found = f"no answer within {seconds:.1f} s"
    if name in ("docker_engine", _DRIVER):
        return Finding(name, State.MISSING, found, "Docker Engine hangs, or DOCKER_HOST is wrong", "docker info")
    return Finding(name, State.MISSING, found, "the check hangs, or this machine is very busy")
