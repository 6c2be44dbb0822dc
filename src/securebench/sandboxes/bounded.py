"""Limits that drivers enforce from outside on every command: its output, and the time until it must be gone."""

from __future__ import annotations

import time
from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar, Generic, Protocol, TypeVar

from securebench.errors import EngineError
from securebench.sandboxes.base import SandboxProcess

if TYPE_CHECKING:
    from securebench.sandboxes.base import Chunk, Command

KILL_GRACE = 30.0
"""Seconds after its time limit in which a killed sandbox must exit. Then its supervisor or engine counts as hung."""


class ProcessStreams(Protocol):
    """The standard streams of a process, implemented by each driver."""

    def send(self, data: bytes) -> None:
        """Write all of ``data``. Raises ``BrokenPipeError`` if the process no longer reads."""

    def close_stdin(self) -> None:
        """Close stdin after sending pending data."""

    def receive(self, timeout: float | None) -> Chunk | None:
        """Return the next output, ``None`` at the end. Raises ``TimeoutError`` after ``timeout`` seconds."""


StreamsT = TypeVar("StreamsT", bound=ProcessStreams)


class BoundedProcess(SandboxProcess, Generic[StreamsT]):
    """A started command with limits on its output, ``output_limit`` bytes, and on its exit after a kill."""

    hanging: ClassVar[tuple[str, str]]
    """The error message for a sandbox that did not stop in time, which takes the grace in seconds, and its hint."""

    def __init__(self, streams: StreamsT, command: Command, output_limit: int) -> None:
        self._streams = streams
        self._output_left = output_limit
        self._give_up = time.monotonic() + command.timeout_seconds + KILL_GRACE

    def send(self, data: bytes) -> None:
        """Write all of ``data``."""
        self._streams.send(data)

    def close_stdin(self) -> None:
        """Close its stdin."""
        self._streams.close_stdin()

    def receive(self, timeout: float | None = None) -> Chunk | None:
        """Return the next output. Output beyond the limit is dropped, and the sandbox is killed."""
        while True:
            chunk = self._receive_bounded(timeout)
            if chunk is None:
                return None
            stream, data = chunk
            kept = data[: self._output_left]
            self._output_left -= len(kept)
            if len(kept) < len(data):
                self._end_for_output()
            if kept:
                return stream, kept

    @abstractmethod
    def _end_for_output(self) -> None:
        """Kill its sandbox for exceeding the output limit. May be called repeatedly until it exits."""

    def _receive_bounded(self, timeout: float | None) -> Chunk | None:
        remaining = self._remaining()
        if timeout is not None and timeout < remaining:
            return self._streams.receive(timeout)
        try:
            return self._streams.receive(remaining)
        except TimeoutError:
            message, hint = self.hanging
            raise EngineError(message.format(KILL_GRACE), hint=hint) from None

    def _remaining(self) -> float:
        return max(0.1, self._give_up - time.monotonic())
