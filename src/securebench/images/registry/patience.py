"""How long a download may take, and how it ends: each wait is bounded, and all of them end when they are told to."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from securebench.errors import ImageError


@dataclass(frozen=True, slots=True)
class Timeouts:
    """The limits of one download, in seconds.

    ``connect`` bounds one connection being made, ``read`` a silence, ``total`` everything. A request is tried
    ``attempts`` times, with ``pause`` between the first two, doubled each time, or as long as the registry asks for:
    up to ``longest_pause``.
    """

    connect: float = 15.0
    read: float = 30.0
    total: float = 3600.0
    attempts: int = 5
    pause: float = 0.5
    longest_pause: float = 120.0


class Deadline:
    """The end of one download, shared by its threads: when its time is over, or at :meth:`stop`."""

    def __init__(self, timeouts: Timeouts) -> None:
        self.timeouts = timeouts
        self._end = time.monotonic() + timeouts.total
        self._stopped = threading.Event()

    def stop(self) -> None:
        """End every wait of the download."""
        self._stopped.set()

    def check(self) -> None:
        """Raise :class:`ImageError` (``registry-unreachable``) once the download is to end."""
        if self._stopped.is_set():
            raise ImageError("the download was stopped", code="registry-unreachable")
        if time.monotonic() >= self._end:
            raise ImageError(
                f"the download took longer than {self.timeouts.total:.0f} s",
                code="registry-unreachable",
                hint="try again when the network is faster: nothing of this attempt is kept",
            )

    def wait(self, seconds: float) -> None:
        """Wait, and no longer than the download has. Raises as :meth:`check` does."""
        self._stopped.wait(min(seconds, max(0.0, self._end - time.monotonic())))
        self.check()
