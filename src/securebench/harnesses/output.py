"""What an agent prints, on its way to events and records: bounded, decoded, never trusted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from securebench.progress import AgentOutput
from securebench.sandboxes.base import Stream

if TYPE_CHECKING:
    from securebench.progress import Reporter
    from securebench.sandboxes.base import Chunk

MAX_RECORDED_BYTES: Final = 64 * 1024
"""What a record keeps of each stream."""

MAX_LINE_BYTES: Final = 1024 * 1024
"""What is reported of one line: all of it or nothing. In parts it could not be looked through for secrets."""

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
        self._lines = {stream: _Lines() for stream in Stream}

    def __call__(self, chunk: Chunk) -> None:
        """Take one chunk."""
        stream, data = chunk
        self._emit(stream, self._lines[stream].take(data))

    def finish(self) -> None:
        """Report the last lines, which have no end."""
        for stream, lines in self._lines.items():
            self._emit(stream, lines.rest())

    def _emit(self, stream: Stream, data: bytes) -> None:
        if data:
            self._report.emit(AgentOutput(stream=stream.value, text=data.decode("utf-8", "replace")))


class _Lines:
    """One stream, cut at the ends of its lines. What goes beyond a bound is left out, with the line that it is in."""

    def __init__(self) -> None:
        self._waiting = bytearray()
        self._left = MAX_REPORTED_BYTES
        self._is_left_out = False
        """Whether the line that is waited for has begun beyond what was kept."""

    def take(self, data: bytes) -> bytes:
        """Return what now has come to an end."""
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
        """Return the last line, which has no end."""
        rest = bytes(self._waiting)
        self._waiting.clear()
        return rest
