"""A command in a container: its time limit and how it ended."""

from __future__ import annotations

import logging
import threading
from enum import Enum, auto
from typing import TYPE_CHECKING

from securebench.errors import InfrastructureError
from securebench.faults import FaultPoint, reached
from securebench.sandboxes.base import TIMEOUT_EXIT_CODE, Command, ExitState
from securebench.sandboxes.docker.container import SIGKILLED
from securebench.sandboxes.lifecycle import BoundedProcess

if TYPE_CHECKING:
    from collections.abc import Callable

    from securebench.sandboxes.docker.container import DockerTarget
    from securebench.sandboxes.docker.stream import EngineStream

_log = logging.getLogger(__name__)


class _Cause(Enum):
    TIME = auto()
    OUTPUT = auto()
    CALLER = auto()


class DockerProcess(BoundedProcess["EngineStream"]):
    """A started command.

    ``on_end`` is called when the command has exited or is abandoned. It may be called more than once.
    """

    hanging = (
        "the engine did not stop a sandbox within {:g} s of its time limit",
        "the engine hangs: restart it, then continue with --resume",
    )

    def __init__(
        self,
        stream: EngineStream,
        target: DockerTarget,
        command: Command,
        output_limit: int,
        on_end: Callable[[DockerProcess], None],
    ) -> None:
        super().__init__(stream, command, output_limit)
        self._target = target
        self._on_end = on_end
        self._cause: _Cause | None = None
        self._state: ExitState | None = None
        self._lock = threading.Lock()
        self._kill_done = threading.Event()
        self._timer = threading.Timer(command.timeout_seconds, self._end, (_Cause.TIME,))
        self._timer.daemon = True
        self._timer.start()

    def wait(self) -> ExitState:
        """Discard unread output and wait until the command exits. Return how it ended."""
        if self._state is None:
            while self.receive() is not None:
                pass
            try:
                reached(FaultPoint.SANDBOX_WAIT)
                self._state = self._final_state(self._target.exit_code(self._remaining()))
                if self._cause is not None:  # all processes of the sandbox must be killed before its files are read
                    self._kill_done.wait(self._remaining())
            finally:
                self.abandon()
        return self._state

    @property
    def has_ended(self) -> bool:
        """Whether :meth:`wait` has found out how the command ended."""
        return self._state is not None

    def kill(self) -> None:
        """Kill the command's sandbox. If the engine cannot do that, :meth:`wait` raises an error."""
        self._end_soon(_Cause.CALLER)

    def abandon(self) -> None:
        """Stop the timer, close the stream and call ``on_end``: the command has exited, or is given up."""
        self._timer.cancel()
        self._streams.close()
        self._on_end(self)

    def _end_for_output(self) -> None:
        self._end_soon(_Cause.OUTPUT)

    def _end_soon(self, cause: _Cause) -> None:
        # The engine answers a kill request only after all output was read, so the reading thread must not send one.
        if self._cause is None:
            threading.Thread(target=self._end, args=(cause,), daemon=True).start()

    def _end(self, cause: _Cause) -> None:
        with self._lock:
            if self._cause is not None:
                return
            self._cause = cause
        self._streams.break_pipe()
        try:
            self._target.kill()
        except InfrastructureError as error:
            _log.warning("a sandbox could not be killed: %s", error.message)  # wait() reports the problem
        finally:
            self._kill_done.set()

    def _final_state(self, code: int) -> ExitState:
        killed = code == SIGKILLED
        # If the time limit fires while the process is exiting anyway, it is not the reason for the exit.
        timed_out = killed and self._cause is _Cause.TIME
        if code and not killed and self._cause is None:
            self._target.require_own_end()
        return ExitState(
            exit_code=TIMEOUT_EXIT_CODE if timed_out else code,
            timed_out=timed_out,
            output_limit_exceeded=self._cause is _Cause.OUTPUT,
            out_of_memory=killed and self._cause is None and self._target.out_of_memory(),
        )
