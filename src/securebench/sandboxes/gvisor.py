"""gVisor as the runtime of a driver: its name and its requirements."""

from __future__ import annotations

from typing import Final

RUNSC: Final = "runsc"
"""The name of its runtime. Processes on it see a kernel of their own, the sentry, which runs in a sandbox itself."""

SENTRY_THREADS: Final = 96
"""More threads than that program was seen to have at once, on machines of a few cores. They are counted with those of
the sandbox, so a limit of processes has to leave room for them."""
