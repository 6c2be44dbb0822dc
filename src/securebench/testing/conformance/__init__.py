"""The conformance suite: the behavior of every sandbox driver, as checks that need no test framework.

``run_conformance(driver, image)`` runs them all and returns the results. ``CHECKS`` lists them, so that a test
framework can parametrize over them. The image needs ``python3`` 3.9 or later and ``/bin/cat``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from securebench.testing.conformance import collecting, ending, forwarding, isolation, lifecycle, limiting, streams
from securebench.testing.conformance.bench import Bench, Check, CheckOutcome, ConformanceError, run_checks
from securebench.testing.conformance.expected_failures import expected_failure

if TYPE_CHECKING:
    from securebench.images.model import ResolvedImage
    from securebench.sandboxes.base import SandboxDriver

__all__ = ["CHECKS", "Bench", "Check", "CheckOutcome", "ConformanceError", "expected_failure", "run_conformance"]

CHECKS: tuple[Check, ...] = (
    *streams.CHECKS,
    *ending.CHECKS,
    *limiting.CHECKS,
    *isolation.CHECKS,
    *forwarding.CHECKS,
    *lifecycle.CHECKS,
    *collecting.CHECKS,
)
"""Every check, in the order in which :func:`run_conformance` runs them."""


def run_conformance(driver: SandboxDriver, image: ResolvedImage) -> list[CheckOutcome]:
    """Run every check on ``driver`` with ``image``, and return the outcomes. A failed check does not raise.

    Checks of features in the driver's ``DriverInfo.lacks`` are skipped (``CheckOutcome.skipped``).
    """
    return run_checks(CHECKS, driver, image)
