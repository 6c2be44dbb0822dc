"""Stop a run: signals, and the thread that stops its sandboxes."""

from __future__ import annotations

import logging
import os
import queue
import signal
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self

from securebench.errors import SecureBenchError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from securebench.execution import RunControl
    from securebench.sandboxes.base import SandboxDriver

_log = logging.getLogger(__name__)

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
INTERRUPTED_EXIT: Final = 130

_HARD_SECONDS: Final = 3.0
"""Seconds that the process waits for its sandboxes to stop after a second signal.

The next run removes sandboxes that did not stop.
"""

_POLL_SECONDS: Final = 0.2

_STDERR: Final = 2
_LEAVE_DISPLAY: Final = b"\x1b[?25h\r\n"
"""The bytes that show the cursor, which the live display hides, and start a new line for the prompt."""

_ENDED: Final = b"stopped at once; finished tasks are saved\n"
_STOPPING: Final = "stopping… finished tasks are saved (press Ctrl-C again to quit immediately)"


class Watch:
    """A context manager that stops the run on a signal, and stops the sandboxes of a run that is stopping.

    The first signal stops the run cleanly and sets ``interrupted``. The second exits the process. A signal handler may
    run between any two instructions of the main thread, so it must not take a lock: on the first signal,
    it only sets ``interrupted`` and puts an item into a queue.
    """

    def __init__(
        self,
        control: RunControl,
        driver: SandboxDriver,
        *,
        handle_signals: bool,
        notify: Callable[[str], None],
    ) -> None:
        self._control = control
        self._driver = driver
        self._handle_signals = handle_signals and threading.current_thread() is threading.main_thread()
        self._notify = notify
        self._notes: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._watch, name="securebench-watch", daemon=True)
        self._over = False
        self._ended = False
        self._before: dict[int, object] = {}
        self.interrupted = False

    def __enter__(self) -> Self:
        self._thread.start()
        if self._handle_signals:
            self._before = {number: signal.signal(number, self._on_signal) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        self._notes.put(False)  # wake the thread up
        self._thread.join()
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal.signal itself returned

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self.interrupted:
            self._end_process()
        self.interrupted = True
        self._notes.put(True)

    def _end_process(self) -> None:
        """Exit the process as soon as the sandboxes have stopped, or after ``_HARD_SECONDS``."""
        deadline = time.monotonic() + _HARD_SECONDS
        while not self._ended and time.monotonic() < deadline:
            time.sleep(0.02)
        with suppress(OSError):  # there may be no terminal
            os.write(_STDERR, (_LEAVE_DISPLAY if os.isatty(_STDERR) else b"") + _ENDED)
        os._exit(INTERRUPTED_EXIT)

    def _watch(self) -> None:
        while not self._over:
            try:
                signalled = self._notes.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                signalled = False
            if signalled:
                self._control.stop()
                with suppress(OSError):  # after SIGHUP there may be no terminal
                    self._notify(_STOPPING)
            if self._control.stopping:
                self._end_sandboxes()

    def _end_sandboxes(self) -> None:
        """Stop all sandboxes. This is repeated until the run is over, because a sandbox may just be starting."""
        try:
            self._driver.kill_all()
        except SecureBenchError as error:
            _log.debug("could not stop the sandboxes: %s", error)
        self._ended = True
