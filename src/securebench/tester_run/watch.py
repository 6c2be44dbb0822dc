"""Stopping a run: signals, and the thread that ends its sandboxes."""

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
    from types import FrameType, TracebackType

    from securebench.execution import RunControl
    from securebench.sandboxes.base import SandboxDriver

_log = logging.getLogger(__name__)

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
INTERRUPTED_EXIT: Final = 130

_HARD_SECONDS: Final = 3.0
"""How long a second signal waits for sandboxes to be ended; what is left then, the next run reaps."""

_POLL_SECONDS: Final = 0.2

_STDERR: Final = 2
_LEAVE_DISPLAY: Final = b"\x1b[?25h\r\n"
"""Shows the cursor, which a live display hides, and ends the last line of the display before the next prompt."""

_ENDED: Final = b"stopped at once; finished tasks are saved\n"
_STOPPING: Final = "stopping: ending the sandboxes; finished tasks are on disk (interrupt again to end at once)"


class Watch:
    """A context manager in which a stopped run loses its sandboxes at once, and signals stop the run.

    The first signal stops it cleanly: ``interrupted`` is true from then on. The second ends the process. A signal
    handler may run between any two instructions of the main thread, so it takes no lock: it leaves a note.
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over = True
        self._notes.put(False)  # the thread need not wait for the next poll
        self._thread.join()
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal.signal itself returned

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self.interrupted:
            self._end_process()
        self.interrupted = True
        self._notes.put(True)

    def _end_process(self) -> None:
        """Leave, as soon as the sandboxes are ended or have had their time."""
        deadline = time.monotonic() + _HARD_SECONDS
        while not self._ended and time.monotonic() < deadline:
            time.sleep(0.02)
        with suppress(OSError):  # the terminal may be gone
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
                with suppress(OSError):  # the terminal may be gone: that is what SIGHUP says
                    self._notify(_STOPPING)
            if self._control.stopping:
                self._end_sandboxes()

    def _end_sandboxes(self) -> None:
        """End what runs. Called until the run is over: a sandbox may be in the making meanwhile."""
        try:
            self._driver.kill_all()
        except SecureBenchError as error:
            _log.debug("ending the sandboxes: %s", error)
        self._ended = True
