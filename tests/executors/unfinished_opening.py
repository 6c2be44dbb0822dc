"""A run that ends while some of its workers are still being opened.

``python unfinished_opening.py ADDRESS DIRECTORY`` executes one assignment on a Ray cluster. Each worker creates a file
in ``DIRECTORY`` when it is opened, and removes the file when it is closed.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from securebench.errors import InfrastructureError
from securebench.executors.ray import RayExecutor, RaySettings
from securebench.testing.conformance.executors import RemoteSleepingWorker, SleepingWorker

if TYPE_CHECKING:
    from collections.abc import Iterator

ADDRESS: Final = sys.argv[1]
DIRECTORY: Final = Path(sys.argv[2])
WORKERS: Final = 3
SECONDS: Final = 60.0


class SlowWorker(RemoteSleepingWorker):
    """The first worker opens at once. The others wait until they are closed, and then fail. Closing takes a second."""

    def __init__(self, settings: bytes) -> None:
        super().__init__(settings)
        self._is_closing = threading.Event()
        self._opening = threading.Lock()
        self._file = DIRECTORY / f"worker-{os.getpid()}"

    def open(self) -> None:
        """See :class:`RemoteWorker`."""
        with self._opening:
            self._file.touch()
            with suppress(FileExistsError):
                (DIRECTORY / "first").mkdir()
                return
            self._is_closing.wait(SECONDS)
            raise InfrastructureError("the run has ended")

    def execute(self, assignment: bytes) -> Iterator[bytes]:
        """See :class:`RemoteWorker`. This waits for the other workers."""
        deadline = time.monotonic() + SECONDS
        while len(list(DIRECTORY.glob("worker-*"))) < WORKERS and time.monotonic() < deadline:
            time.sleep(0.05)
        yield from super().execute(assignment)

    def close(self) -> None:
        """See :class:`RemoteWorker`."""
        self._is_closing.set()
        with self._opening:
            time.sleep(1)
            self._file.unlink()


class Slow(SleepingWorker):
    """The coordinator's side."""

    remote = staticmethod(SlowWorker)


if __name__ == "__main__":
    executor = RayExecutor(WORKERS, RaySettings(address=ADDRESS))
    assignments = [json.dumps({"sleep": 0}).encode()]
    (result,) = executor.run(assignments, Slow(), draining=lambda: False, abandoned=lambda: None)
    assert result
