"""The host's channel to the process of the candidate or of the tests.

The channel exchanges frames with the process, and reports how the process ends.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from securebench.sandboxes.base import Stream
from securebench.verifiers.code_completion.guest.wire import HEADER_BYTES, MAX_FRAME_BYTES, OUTPUT_END

if TYPE_CHECKING:
    from securebench.sandboxes.base import Chunk, ExitState, SandboxProcess

MAX_READ_PAYLOAD: Final = 4096
"""The longest payload that the host itself parses, in bytes. Verdicts and failure reports have about 100 bytes."""

_OUTPUT_SECONDS: Final = 1.0
"""Seconds to wait for the marker that ends a process's output. It may arrive after a frame that was sent later."""


@dataclass(frozen=True, slots=True)
class ChannelFrame:
    """A frame: its type byte and its payload, which is not parsed."""

    kind: bytes
    payload: bytes

    def encode(self) -> bytes:
        """Return the frame as bytes for the wire."""
        return self.kind + len(self.payload).to_bytes(4, "big") + self.payload

    def fields(self) -> dict[str, Any]:
        """Return the parsed payload. Raises ``ValueError`` if it is too long or not a JSON object."""
        if len(self.payload) > MAX_READ_PAYLOAD:
            raise ValueError("the payload is too long")
        try:
            fields = json.loads(self.payload)
        except RecursionError as error:
            raise ValueError("the payload is nested too deeply") from error
        if not isinstance(fields, dict):
            raise ValueError("the payload is not an object")  # noqa: TRY004 - a malformed message, not a caller's mistake
        return fields


def frame(kind: bytes, **fields: Any) -> ChannelFrame:
    """Return a frame of type ``kind`` whose payload is a JSON object with ``fields``."""
    return ChannelFrame(kind, json.dumps(fields).encode("ascii"))


class End(StrEnum):
    """Why no more frames are received from a side."""

    EXITED = "exited"
    OUT_OF_MEMORY = "out_of_memory"
    OUTPUT_LIMIT = "output_limit"
    TIMEOUT = "timeout"
    VIOLATION = "violation"

    @property
    def text(self) -> str:
        """What happened, for a message about the process, such as ``ran out of memory``."""
        return _TEXTS[self]


_TEXTS: Final = {
    End.EXITED: "exited",
    End.OUT_OF_MEMORY: "ran out of memory",
    End.OUTPUT_LIMIT: "exceeded the output limit",
    End.TIMEOUT: "did not answer in time",
    End.VIOLATION: "sent an invalid message",
}


class ChannelEndedError(Exception):
    """No more frames are received from the process at the other end of the channel.

    ``end`` is the reason. ``exit_code`` is set if the process has exited.
    """

    def __init__(self, end: End, exit_code: int | None = None) -> None:
        super().__init__(end.value)
        self.end = end
        self.exit_code = exit_code


class FrameChannel:
    """Exchanges frames with a process.

    ``output`` has the first ``keep_output`` bytes of the process's stderr. :meth:`stop_keeping` cuts it off at the
    marker ``OUTPUT_END``.
    """

    def __init__(self, process: SandboxProcess, *, keep_output: int = 0) -> None:
        self.output = bytearray()
        self._process = process
        self._keep = keep_output
        self._buffer = bytearray()

    def send(self, data: bytes) -> None:
        """Write raw bytes. If the process no longer reads, the next :meth:`receive` raises an error."""
        try:
            self._process.send(data)
        except BrokenPipeError:
            return

    def stop_keeping(self) -> None:
        """Receive output up to the process's end marker. Later output is not kept.

        Output and frames arrive on two streams, in no particular order. Without waiting for the marker, the amount of
        output that is kept would be random. A process that never writes the marker delays this call by
        up to ``_OUTPUT_SECONDS``.
        """
        deadline = time.monotonic() + _OUTPUT_SECONDS
        while OUTPUT_END not in self.output and len(self.output) < self._keep:
            try:
                chunk = self._process.receive(max(deadline - time.monotonic(), 0.0))
            except TimeoutError:
                break
            if chunk is None or time.monotonic() > deadline:  # receive() never times out while output is flooding in
                break
            self._add(chunk)
        self._keep = 0
        self.output = self.output.partition(OUTPUT_END)[0]

    def receive(self, deadline: float, allowed: frozenset[bytes]) -> ChannelFrame:
        """Return the next frame. Raises :class:`ChannelEndedError`, and the driver's :class:`InfrastructureError`.

        ``deadline`` is a time of ``time.monotonic``; ``allowed`` are the types that this frame may have.
        """
        while True:
            found = self._next_frame(allowed)
            if found is not None:
                return found
            self._receive_chunk(deadline)

    def _receive_chunk(self, deadline: float) -> None:
        try:
            chunk = self._process.receive(max(deadline - time.monotonic(), 0.0))
        except TimeoutError:
            raise ChannelEndedError(End.TIMEOUT) from None
        if chunk is None:
            raise _ending(self._process.wait())
        self._add(chunk)
        if time.monotonic() > deadline:  # receive() never times out while output is flooding in
            raise ChannelEndedError(End.TIMEOUT)

    def _add(self, chunk: Chunk) -> None:
        stream, data = chunk
        if stream is Stream.STDOUT:
            self._buffer += data
        else:
            self.output += data[: max(self._keep - len(self.output), 0)]

    def _next_frame(self, allowed: frozenset[bytes]) -> ChannelFrame | None:
        """Remove and return the buffer's first frame. Return ``None`` if the frame is incomplete.

        Raises :class:`ChannelEndedError`.
        """
        if len(self._buffer) < HEADER_BYTES:
            return None
        kind, length = bytes(self._buffer[:1]), int.from_bytes(self._buffer[1:HEADER_BYTES], "big")
        if kind not in allowed or length > MAX_FRAME_BYTES:
            raise ChannelEndedError(End.VIOLATION)
        end = HEADER_BYTES + length
        if len(self._buffer) < end:
            return None
        payload = bytes(self._buffer[HEADER_BYTES:end])
        del self._buffer[:end]
        return ChannelFrame(kind, payload)


def _ending(state: ExitState) -> ChannelEndedError:
    for flag, end in (
        (state.out_of_memory, End.OUT_OF_MEMORY),
        (state.output_limit_exceeded, End.OUTPUT_LIMIT),
        (state.timed_out, End.TIMEOUT),
    ):
        if flag:
            return ChannelEndedError(end, state.exit_code)
    return ChannelEndedError(End.EXITED, state.exit_code)
