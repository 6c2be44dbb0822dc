"""The possible results of using up memory, if the driver does not limit the memory of a sandbox as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from securebench.errors import FailureReason
from securebench.sandboxes.spec_rules import RUNSC

if TYPE_CHECKING:
    from collections.abc import Collection

    from securebench.sandboxes.base import SandboxDriver

_REFUSED_MORE = {FailureReason.CANDIDATE_CRASHED, FailureReason.TESTS_FAILED, FailureReason.CHECK_FAILED}


def has_all_memory(driver: SandboxDriver) -> bool:
    """Return whether a sandbox can use all memory of the machine.

    With gVisor, the memory limits of single processes have no effect. So nothing limits memory if the sandbox as a
    whole has no limit.
    """
    info = driver.info()
    return "memory" in info.weaker and info.runtime == RUNSC


def possible_reasons(driver: SandboxDriver, reasons: Collection[FailureReason]) -> set[FailureReason]:
    """Return ``reasons``, and the reasons for which a process may fail instead of running out of memory.

    They are added only if ``reasons`` contains "out of memory" and ``driver`` does not limit the memory of a whole
    sandbox. A process is then not killed, but gets a ``MemoryError``. If nothing limits memory, it runs until its
    time-out.
    """
    if FailureReason.CANDIDATE_OUT_OF_MEMORY not in reasons or "memory" not in driver.info().weaker:
        return set(reasons)
    return {*reasons, *_REFUSED_MORE, *([FailureReason.CANDIDATE_TIMEOUT] if has_all_memory(driver) else [])}
