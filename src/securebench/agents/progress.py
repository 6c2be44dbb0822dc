"""What an installation tells while it works."""

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
    """What is being done."""

    WAITING = "waiting for another installation"
    DOWNLOADING = "downloading"
    READING = "reading"
    UNPACKING = "unpacking"
    INSTALLED = "installed"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far it is: ``done`` of ``size`` bytes; ``size`` is 0 where it is not known."""

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
    """Return what tells ``report`` of each stage, and every few ``seconds`` how far it is."""
    stage: InstallStage | None = None
    told = 0.0

    def on_progress(progress: Progress) -> None:
        nonlocal stage, told
        if progress.stage is not stage or time.monotonic() - told >= seconds:
            stage, told = progress.stage, time.monotonic()
            report(str(progress))

    return on_progress


class Teller:
    """Tells of one stage, now and then, as bytes go by."""

    def __init__(self, on_progress: OnProgress, what: str, stage: InstallStage) -> None:
        self._on_progress = on_progress
        self._what = what
        self._stage = stage
        self._done = 0
        self._told = time.monotonic()
        on_progress(Progress(what, stage))

    def add(self, count: int, size: int = 0) -> None:
        """Count bytes, of ``size`` in all if that is known."""
        self._done += count
        if time.monotonic() - self._told >= _TICK:
            self._told = time.monotonic()
            self._on_progress(Progress(self._what, self._stage, self._done, size))
