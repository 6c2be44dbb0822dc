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
"""Host to the tests' side: a task begins. The payload is a random number and, in four bytes, a time limit in seconds.

If the time limit is 0, the process runs the task itself. Otherwise, it may fork a process for the task (``forks.py``).
The time limit then applies to the forked process.
"""
NONCE_BYTES = 16
HELLO = b"H"
"""Either side to host: the side's program has started, and has run only SecureBench's code so far. The tests' side adds
the random number of START, and then ``1`` if the process has forked, else ``0``."""
SOURCE = b"S"
"""Host to either side: the code to run."""
READY = b"R"
"""Candidate's side to host: the candidate is loaded."""
FAILED = b"F"
"""Candidate's side to host: why the candidate's side cannot continue. The candidate then fails."""
REQUEST = b"Q"
"""Either side to the other: do something and reply."""
REPLY = b"A"
"""Either side to the other: the result of a request."""
VERDICT = b"V"
"""Tests' side to host: how the tests ended."""
END = b"E"
"""Tests' side to host: the process of a task has exited."""

OUTPUT_END = b"\0"
"""Candidate's side to host, on stderr: what the candidate printed while it was loaded ends here."""
CLEAN = b"C"
"""Tests' side to host, on stderr: nothing is left of the task."""

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
