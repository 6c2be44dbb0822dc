"""Run one command of the model, with bounded time and output."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_OUTPUT: Final = 16 * 1024
"""Maximum bytes of a command's output that the model gets. The middle of longer output is left out."""

_DRAIN_SECONDS: Final = 0.5
_PIECE: Final = 64 * 1024


class _Output:
    """The beginning and the end of an output. A thread reads it, because background processes may keep it open."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._head, self._tail, self._size = b"", b"", 0
        self._lock = threading.Lock()
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        with suppress(OSError), self._stream:
            while piece := os.read(self._stream.fileno(), _PIECE):
                with self._lock:
                    room = MAX_OUTPUT // 2 - len(self._head)
                    self._head += piece[:room]
                    self._tail = (self._tail + piece[room:])[-MAX_OUTPUT // 2 :]
                    self._size += len(piece)

    def text(self) -> str:
        """Return the output so far."""
        with self._lock:
            left = self._size - len(self._head) - len(self._tail)
            gap = f"\n[{left} bytes left out]\n".encode() if left else b""
            return (self._head + gap + self._tail).decode("utf-8", "replace")


def run_command(command: str, seconds: float, environment: Mapping[str, str]) -> tuple[str, int | None]:
    """Return the output of a command and its exit code, which is ``None`` if the command ran longer than ``seconds``.

    Such a command is killed, together with its background processes. If a command exits in time, its background
    processes keep running. If it cannot be started, the output says why and the exit code is 1.
    """
    program = "/bin/bash" if Path("/bin/bash").exists() else "/bin/sh"
    try:
        process = subprocess.Popen(  # noqa: S603 - running what the model wrote is the purpose, in its sandbox
            [program, "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            start_new_session=True,
        )
    except (OSError, ValueError) as error:  # the command is too long, or no process can be started
        return f"cannot run the command: {error}", 1
    assert process.stdout is not None
    output = _Output(process.stdout)
    try:
        code: int | None = process.wait(seconds)
    except subprocess.TimeoutExpired:
        code = None
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    output.thread.join(_DRAIN_SECONDS)
    return output.text(), code
