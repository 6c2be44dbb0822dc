"""The pages of ``securebench view``, which are rendered from the current files when they are requested."""

from __future__ import annotations

import hashlib
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from securebench.report.detail import FULL, task_detail
from securebench.report.html_report import report_page, report_views
from securebench.report.pages import render
from securebench.report.task_rows import show_command
from securebench.results.run_directory.files import JOURNAL, SUPERSEDED
from securebench.results.run_directory.header import HEADER
from securebench.results.suite import read_all

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

_REST: Final = 4
"""The minimum time between two renderings of an overview, as a multiple of the rendering time. It limits CPU use."""


@dataclass(frozen=True, slots=True)
class Page:
    """A rendered page. ``tag`` changes with its content."""

    content: bytes
    tag: str


class LivePages:
    """The pages of runs, including all runs of a suite. Thread safe: one thread renders at a time."""

    def __init__(self, directories: Sequence[Path]) -> None:
        self._directories = directories
        self._lock = threading.Lock()
        self._overview: Page | None = None
        self._state: object = None
        self._not_before = 0.0

    def overview(self) -> Page:
        """Return the page of all runs. Raises :class:`ConfigError` if a run is missing or damaged."""
        with self._lock:
            start = time.monotonic()
            state = self._files()
            if self._overview is not None and (state == self._state or start < self._not_before):
                return self._overview
            self._overview = _page(report_page(report_views(self._directories, with_detail=False), is_live=True))
            self._state = state
            end = time.monotonic()
            self._not_before = end + _REST * (end - start)
            return self._overview

    def task(self, number: int, sequence: int) -> Page | None:
        """Return the page of the record ``sequence`` of run ``number``; ``None`` if this record does not exist.

        ``number`` counts from 1. Raises :class:`ConfigError` for a damaged run.
        """
        with self._lock:
            runs = read_all(self._directories)
            if not 1 <= number <= len(runs):
                return None
            run = runs[number - 1]
            record = next((item for item in run.records() if item.sequence == sequence), None)
            if record is None:
                return None
            detail, command = task_detail(run, record, FULL), show_command(run, record)
            return _page(render("task.html", run=run, record=record, detail=detail, command=command, is_live=False))

    def _files(self) -> object:
        """Return a value that changes when a record is written, or a run ends.

        It includes whether each run is active, because a killed run changes no file.
        """
        return [
            (run.is_active, [_stamp(run.directory / name) for name in (JOURNAL, SUPERSEDED, HEADER)])
            for run in read_all(self._directories)
        ]


def message_page(title: str, message: str) -> Page:
    """Return a page with a message."""
    return _page(render("message.html", title=title, message=message, is_live=False))


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def _page(parts: Iterable[str]) -> Page:
    content = "".join(parts).encode("utf-8", "backslashreplace")
    return Page(content, f'"{hashlib.sha256(content).hexdigest()[:32]}"')
