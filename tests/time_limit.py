"""Time limits for work on large runs, which are longer on slow machines."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from securebench.results.read import read_run

if TYPE_CHECKING:
    from pathlib import Path


def time_limit(run: Path, seconds: float) -> float:
    """Return ``seconds``, or more on a machine that needs more than a second to read the 10,000 records of ``run``."""
    start = time.process_time()
    assert sum(1 for _ in read_run(run).records()) == 10_000
    return seconds * max(1.0, time.process_time() - start)
