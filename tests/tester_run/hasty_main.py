"""As ``pinned_main``, but nothing is tried twice, and a sandbox that does not start is given up soon."""

from __future__ import annotations

from securebench.cli import process
from securebench.execution import retry
from securebench.sandboxes.oci import sandbox
from securebench.verifiers.code_completion import sides
from tester_run.running import pin_framework

pin_framework()
retry.BACK_OFF = ()
sandbox._START_SECONDS = 10.0  # type: ignore[misc] # a minute otherwise
sides.START_SECONDS = 10.0  # type: ignore[misc]
process()
