"""The command line with a constant digest of the framework: ``python -m tester_run.pinned_main run ...``."""

from __future__ import annotations

from securebench.cli import process
from tester_run.running import pin_framework

pin_framework()
process()
