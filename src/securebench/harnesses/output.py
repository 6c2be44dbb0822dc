"""Agent output for events and records: bounded, decoded, never trusted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from securebench.progress import AgentOutput
from securebench.sandboxes.base import Stream

if TYPE_CHECKING:
    from securebench.progress import Reporter
    from securebench.sandboxes.base import Chunk

MAX_RECORDED_BYTES: Final = 64 * 1024
"""Bytes of each stream that a record keeps."""

MAX_LINE_BYTES: Final = 1024 * 1024
"""Longer lines are not reported: a secret that is split between two parts would not be redacted."""

MAX_REPORTED_BYTES: Final = 4 * 1024 * 1024
"""Bytes reported of each stream of one task. The rest is dropped so that no flood reaches a terminal."""


def recorded(data: bytes) -> str:
    """Return the beginning of ``data`` as text. The record escapes control characters, so they are kept here."""
    text = data[:MAX_RECORDED_BYTES].decode("utf-8", "replace")
    rest = len(data) - MAX_RECORDED_BYTES
    return f"{text}\n[{rest} more bytes]\n" if rest > 0 else text


class OutputReporter:
    """Reports chunks of output as ``agent_output`` events of whole lines."""

    def __init__(self, report: Reporter) -> None:
        self._report = report
        self._lines = {stream: _Lines() for stream in Stream}

    def __call__(self, chunk: Chunk) -> None:
        """Add one chunk."""
        stream, data = chunk
        self._emit(stream, self._lines[stream].take(data))

    def finish(self) -> None:
        """Report the last, unterminated line of each stream."""
        for stream, lines in self._lines.items():
            self._emit(stream, lines.rest())

    def _emit(self, stream: Stream, data: bytes) -> None:
        if data:
            self._report.emit(AgentOutput(stream=stream.value, text=data.decode("utf-8", "replace")))


class _Lines:
    """Splits one stream into whole lines. A line that exceeds a limit is dropped as a whole."""

    def __init__(self) -> None:
        self._waiting = bytearray()
        self._left = MAX_REPORTED_BYTES
        self._is_left_out = False
        """Whether the beginning of the current line was dropped."""

    def take(self, data: bytes) -> bytes:
        """Add ``data`` and return the lines that are complete."""
        taken, self._left = data[: self._left], self._left - min(len(data), self._left)
        if self._is_left_out:
            _, line_end, taken = taken.partition(b"\n")
            self._is_left_out = not line_end
        self._waiting += taken
        end = self._waiting.rfind(b"\n") + 1
        whole = bytes(self._waiting[:end])
        del self._waiting[:end]
        if len(self._waiting) > MAX_LINE_BYTES or (self._waiting and not self._left):
            self._waiting.clear()
            self._is_left_out = True
        return whole

    def rest(self) -> bytes:
        """Return the last, unterminated line."""
        rest = bytes(self._waiting)
        self._waiting.clear()
        return rest
