"""Progress reports of an installation."""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

_SECONDS: Final = 5.0
_TICK: Final = 0.1


class InstallStage(StrEnum):
    """The current step of an installation."""

    WAITING = "waiting for another installation"
    DOWNLOADING = "downloading"
    READING = "reading"
    UNPACKING = "unpacking"
    INSTALLED = "installed"


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress in bytes: ``done`` of ``size``. ``size`` is 0 if it is unknown."""

    what: str
    stage: InstallStage
    done: int = 0
    size: int = 0

    def __str__(self) -> str:
        if not self.done:
            return f"{self.what}: {self.stage}"
        of = f" of {self.size / 1e6:.0f}" if self.size else ""
        return f"{self.what}: {self.stage}, {self.done / 1e6:.0f}{of} MB"


OnProgress: TypeAlias = "Callable[[Progress], None]"


def lines(report: Callable[[str], None], seconds: float = _SECONDS) -> OnProgress:
    """Return a callback that calls ``report`` for each new stage and, within a stage, at most once per ``seconds``."""
    stage: InstallStage | None = None
    reported = 0.0

    def on_progress(progress: Progress) -> None:
        nonlocal stage, reported
        if progress.stage is not stage or time.monotonic() - reported >= seconds:
            stage, reported = progress.stage, time.monotonic()
            report(str(progress))

    return on_progress


class ProgressReporter:
    """Reports the progress of one stage at intervals."""

    def __init__(self, on_progress: OnProgress, what: str, stage: InstallStage) -> None:
        self._on_progress = on_progress
        self._what = what
        self._stage = stage
        self._done = 0
        self._reported = time.monotonic()
        on_progress(Progress(what, stage))

    def add(self, count: int, size: int = 0) -> None:
        """Add ``count`` bytes. ``size`` is the total if it is known."""
        self._done += count
        if time.monotonic() - self._reported >= _TICK:
            self._reported = time.monotonic()
            self._on_progress(Progress(self._what, self._stage, self._done, size))
