"""A run with fakes that tests interrupt with signals: ``interrupted_run.py ROOT MODE``.

It prints ``running`` when its third task runs. This task waits until its sandboxes are ended. Then it fails at once
(``MODE`` is ``ends``) or after another minute (``hangs``).
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from run_fakes import FakeProducer
from securebench.errors import EngineError
from securebench.tester_run import RunOptions, run_benchmark
from securebench.testing.scripted_sandbox import ScriptedDriver
from tester_run.running import configuration, make_parts, pin_framework

if TYPE_CHECKING:
    from securebench.harnesses.base import ProduceContext
    from securebench.tasks import AgentView


class Driver(ScriptedDriver):
    """A driver that sets the event ``ended`` when its sandboxes are ended."""

    ended = threading.Event()

    def kill_all(self) -> None:
        """Set the event, and end all sandboxes."""
        self.ended.set()
        super().kill_all()


def hook(number: int, _: AgentView, __: ProduceContext) -> None:
    """Return at once for the first two tasks. For others, print ``running`` and wait for the end of the sandboxes."""
    if number < 3:
        return
    sys.stdout.write("running\n")
    sys.stdout.flush()
    Driver.ended.wait(60)
    if sys.argv[2] == "hangs":
        time.sleep(60)
    raise EngineError("the sandbox was ended")


def notify(text: str) -> None:
    """Print a message to standard error."""
    sys.stderr.write(f"{text}\n")


pin_framework()
summary = run_benchmark(
    configuration(Path(sys.argv[1])),
    RunOptions(handle_signals=True, notify=notify),
    (),
    make_parts(FakeProducer(hook=hook), Driver()),
)
sys.stdout.write(f"{summary.ending} {summary.passed} {summary.total.not_run} {Driver.ended.is_set()}\n")
