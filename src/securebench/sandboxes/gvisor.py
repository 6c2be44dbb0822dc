"""gVisor as the runtime of a driver: its name and its requirements."""

from __future__ import annotations

from typing import Final

RUNSC: Final = "runsc"
"""The name of its runtime. Processes run on the sentry, gVisor's kernel in user space, which is sandboxed itself."""

SENTRY_THREADS: Final = 96
"""More threads than the sentry was observed to use on machines with a few cores. They count against the sandbox's
process limit, so the limit is raised by this number."""
