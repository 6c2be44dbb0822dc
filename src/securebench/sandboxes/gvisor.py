"""gVisor as a runtime beneath either driver: its name, and what it needs beside what a sandbox is to have."""

from __future__ import annotations

from typing import Final

RUNSC: Final = "runsc"
"""The name of its runtime. What runs on it sees a kernel of its own, a program that is itself in a sandbox."""

SENTRY_THREADS: Final = 96
"""More threads than that program was seen to have at once, on machines of a few cores. They are counted with those of
the sandbox, so a limit of processes has to leave room for them."""
