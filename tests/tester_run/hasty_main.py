"""The command line of ``pinned_main``, without retries after machine failures, and with short limits for starts."""

from __future__ import annotations

from securebench.cli import process
from securebench.execution import retry
from securebench.sandboxes.oci import sandbox
from securebench.verifiers.code_completion import sides
from tester_run.running import pin_framework

pin_framework()
retry.BACK_OFF = ()
sandbox._START_SECONDS = 10.0  # type: ignore[misc] # the default is a minute
sides.START_SECONDS = 10.0  # type: ignore[misc]
process()
