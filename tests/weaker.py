"""What comes of using up memory where a driver says that a sandbox's memory is not limited as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from securebench.errors import FailureReason
from securebench.sandboxes.spec_rules import RUNSC

if TYPE_CHECKING:
    from collections.abc import Collection

    from securebench.sandboxes.base import SandboxDriver

_REFUSED_MORE = {FailureReason.CANDIDATE_CRASHED, FailureReason.TESTS_FAILED, FailureReason.CHECK_FAILED}


def has_all_memory(driver: SandboxDriver) -> bool:
    """Whether nothing limits memory: gVisor's limits of a process are those of its own kernel."""
    info = driver.info()
    return "memory" in info.weaker and info.runtime == RUNSC


def possible_reasons(driver: SandboxDriver, reasons: Collection[FailureReason]) -> set[FailureReason]:
    """Return ``reasons``, and beside running out of memory what else a process meets that is merely given no more.

    It is told so then (``MemoryError``), where in other sandboxes it is killed; one that is given all that there is
    goes on until its time is up: a failure in each case.
    """
    if FailureReason.CANDIDATE_OUT_OF_MEMORY not in reasons or "memory" not in driver.info().weaker:
        return set(reasons)
    return {*reasons, *_REFUSED_MORE, *([FailureReason.CANDIDATE_TIMEOUT] if has_all_memory(driver) else [])}
