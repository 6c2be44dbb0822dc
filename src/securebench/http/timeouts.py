"""How long a download may take, and how it is stopped."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass

from securebench.http.errors import DeadlineError


@dataclass(frozen=True, slots=True)
class Timeouts:
    """The limits of one download. All times are in seconds.

    ``connect`` limits the time to connect, ``read`` the time without data, ``total`` the whole download.

    The download fails after ``attempts`` failed attempts. The first pause between two attempts is ``pause``, and each
    further pause is twice as long. If an attempt makes progress, the count and the pauses start again. If the server
    asks for a certain pause, that pause is used instead. The download also fails if a pause would exceed
    ``longest_pause``.
    """

    connect: float = 15.0
    read: float = 30.0
    total: float = 3600.0
    attempts: int = 5
    pause: float = 0.5
    longest_pause: float = 120.0


class Deadline:
    """Ends one download when its total time is over, or when :meth:`stop` is called. Shared by its threads.

    Socket timeouts limit a single read, and a server that sends one byte at a time restarts them. The deadline
    therefore shuts down the sockets that it watches, which wakes up every thread that reads from them.
    """

    def __init__(self, timeouts: Timeouts | None = None) -> None:
        self.timeouts = timeouts or Timeouts()
        self._end = time.monotonic() + self.timeouts.total
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._watched: set[socket.socket] = set()
        self._timer: threading.Timer | None = None

    def stop(self) -> None:
        """Interrupt the download, in all threads."""
        self._stopped.set()
        self._interrupt()

    def check(self) -> None:
        """Raise :class:`DeadlineError` if the download has to end."""
        if self._stopped.is_set():
            raise DeadlineError("it was stopped")
        if time.monotonic() >= self._end:
            raise DeadlineError(f"it took longer than {self.timeouts.total:g} s")

    def wait(self, seconds: float) -> None:
        """Sleep for ``seconds``, or until the download has to end. Raises the errors of :meth:`check`."""
        self._stopped.wait(min(seconds, max(0.0, self._end - time.monotonic())))
        self.check()

    def watch(self, connection: socket.socket) -> socket.socket:
        """Watch ``connection``, so that it is shut down at the deadline. Return a handle for :meth:`forget`."""
        # The handle is a duplicate, because TLS moves the descriptor to another socket object. Shutting down the
        # handle also shuts down the connection. The lock keeps a handle open while it is being shut down: the
        # descriptor number of a closed handle may already belong to another file.
        handle = connection.dup()
        with self._lock:
            self._watched.add(handle)
            if self._timer is None:
                self._timer = threading.Timer(max(0.0, self._end - time.monotonic()), self._interrupt)
                self._timer.daemon = True
                self._timer.start()
        if self._stopped.is_set():
            self._interrupt()
        return handle

    def forget(self, handle: socket.socket) -> None:
        """Stop watching a connection."""
        with self._lock:
            self._watched.discard(handle)
            handle.close()
            if self._timer is not None and not self._watched:
                self._timer.cancel()
                self._timer = None

    def _interrupt(self) -> None:
        with self._lock:
            for handle in self._watched:
                with suppress(OSError):  # the server has already hung up
                    handle.shutdown(socket.SHUT_RDWR)
