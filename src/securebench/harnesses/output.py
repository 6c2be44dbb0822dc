"""What an agent prints, on its way to events and records: bounded, decoded, never trusted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from securebench.progress import EventKind
from securebench.sandboxes.base import Stream

if TYPE_CHECKING:
    from securebench.progress import Reporter
    from securebench.sandboxes.base import Chunk

MAX_RECORDED_BYTES: Final = 64 * 1024
"""What a record keeps of each stream."""

MAX_EVENT_BYTES: Final = 8 * 1024
"""What one event holds: whole lines, or a part of a longer one."""

MAX_REPORTED_BYTES: Final = 4 * 1024 * 1024
"""What is reported of each stream of one task; the rest is dropped, so that no flood reaches a terminal."""


def recorded(data: bytes) -> str:
    """Return the beginning of ``data`` as text. Control characters stay: the record escapes them."""
    text = data[:MAX_RECORDED_BYTES].decode("utf-8", "replace")
    rest = len(data) - MAX_RECORDED_BYTES
    return f"{text}\n[{rest} more bytes]\n" if rest > 0 else text


class OutputReporter:
    """Takes chunks and reports them as ``agent_output`` events of whole lines."""

    def __init__(self, report: Reporter) -> None:
        self._report = report
        self._waiting = {stream: bytearray() for stream in Stream}
        self._left = dict.fromkeys(Stream, MAX_REPORTED_BYTES)

    def __call__(self, chunk: Chunk) -> None:
        """Take one chunk."""
        stream, data = chunk
        taken = data[: self._left[stream]]
        self._left[stream] -= len(taken)
        waiting = self._waiting[stream]
        waiting += taken
        while (end := _event_end(waiting)) > 0:
            self._emit(stream, end)

    def finish(self) -> None:
        """Report the last lines, which have no end."""
        for stream, waiting in self._waiting.items():
            if waiting:
                self._emit(stream, len(waiting))

    def _emit(self, stream: Stream, end: int) -> None:
        waiting = self._waiting[stream]
        text = waiting[:end].decode("utf-8", "replace")
        del waiting[:end]
        self._report.emit(EventKind.AGENT_OUTPUT, stream=stream.value, text=text)


def _event_end(waiting: bytearray) -> int:
    """Return how much can be reported now: up to the last line's end that fits, or a full event; else 0."""
    end = waiting.rfind(b"\n", 0, MAX_EVENT_BYTES) + 1
    return end or (MAX_EVENT_BYTES if len(waiting) >= MAX_EVENT_BYTES else 0)
