"""Frames: a type byte, the length of the payload in four bytes (big-endian), and the payload.

The payload is a JSON object, except in START, in END, and in the HELLO of the tests' side.
"""

from __future__ import annotations

import os

from securebench.verifiers.code_completion.guest.text import dumps, loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

START = b"T"
"""The host tells the tests' side that a task begins.

The payload is a random number and, in four bytes, a time limit in seconds. If the time limit is 0, the process that
reads START runs the task itself. With another time limit, the process that reads START can fork a process for the task
(``forks.py``), and the time limit applies to the forked process.
"""
NONCE_BYTES = 16
HELLO = b"H"
"""Either side tells the host that the side's program has started, and has run only SecureBench's code so far.

The tests' side adds the random number of START, and then ``1`` if the process has forked, else ``0``.
"""
SOURCE = b"S"
"""The host sends either side the code to run."""
READY = b"R"
"""The candidate's side tells the host that the candidate is loaded."""
FAILED = b"F"
"""The candidate's side tells the host why this side cannot continue. The candidate then fails."""
REQUEST = b"Q"
"""One side asks the other to do something and reply."""
REPLY = b"A"
"""One side sends the other the result of a request."""
VERDICT = b"V"
"""The tests' side tells the host how the tests ended."""
END = b"E"
"""The tests' side tells the host that the process of a task has exited."""

OUTPUT_END = b"\0"
"""The candidate's side writes this byte to stderr after everything that the candidate printed while it was loaded."""
CLEAN = b"C"
"""The tests' side writes this byte to stderr if the task left no process, file or other change behind."""

HEADER_BYTES = 5
MAX_FRAME_BYTES = 16 * 1024 * 1024
"""The maximum length of a payload. A list of a million small numbers fits.

The host buffers at most one frame from the candidate's side and one from the tests' side.
"""


class FrameTooLargeError(ValueError):
    """A payload is longer than ``MAX_FRAME_BYTES``."""


class Wire:
    """One side's end of the channel: reads and writes whole frames on two file descriptors."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._read_fd = read_fd
        self._write_fd = write_fd

    @classmethod
    def take_over(cls, *, silent: bool) -> Wire:
        """Return a channel on copies of fds 0 and 1. Printed output then goes to stderr or, if ``silent``, nowhere.

        Programs that this process starts do not inherit the channel's descriptors.
        """
        wire = cls(os.dup(0), os.dup(1))
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, 0)
        os.dup2(2, 1)
        os.close(nowhere)
        if silent:
            cls.silence()
        return wire

    @staticmethod
    def silence() -> None:
        """Discard what this process prints from now on, because tests may print expected values."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        os.close(nowhere)

    def read(self) -> tuple[bytes, Any]:
        """Return the type and payload of the next frame. Raises ``ValueError`` or ``RecursionError`` for invalid JSON.

        If the channel is closed, the process exits, which no test can catch.
        """
        header = self._take(HEADER_BYTES)
        return header[:1], loads(self._take(int.from_bytes(header[1:], "big")))

    def write(self, kind: bytes, message: dict[str, Any]) -> None:
        """Write one frame. Raises :class:`FrameTooLargeError`."""
        body = dumps(message).encode("ascii")
        if len(body) > MAX_FRAME_BYTES:
            raise FrameTooLargeError(f"{len(body)} bytes are more than a frame may hold")
        data = memoryview(kind + len(body).to_bytes(4, "big") + body)
        while data:
            data = data[os.write(self._write_fd, data) :]

    def _take(self, count: int) -> bytes:
        parts = []
        while count:
            part = os.read(self._read_fd, min(count, 1 << 20))
            if not part:
                os._exit(1)
            parts.append(part)
            count -= len(part)
        return b"".join(parts)
