"""``running.json``: the tasks that a run is executing now. The file is ignored unless the run is locked.

No result depends on it. The file is replaced as a whole, but never synced to disk, because nobody needs it after a
crash.
"""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Self

from securebench.errors import ConfigError
from securebench.fs.durable import temporary_name
from securebench.limits import MIB
from securebench.progress import RunStart, TaskDone, TaskStart, VerifierStart
from securebench.strict_input.files import read_text
from securebench.strict_input.json_text import UnfitJsonError, decode_json

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.progress import Event
    from securebench.resources import JsonValue
    from securebench.trials import TrialId

RUNNING: Final = "running.json"
WRITE_SECONDS: Final = 0.2
"""How long a change of the running tasks may take to appear in the file, in seconds."""
_PHASES: Final = frozenset({"agent", "verifier"})
_MAX_BYTES: Final = 4 * MIB


@dataclass(frozen=True, slots=True)
class RunningTask:
    """A trial in progress. ``phase`` is ``agent`` or ``verifier``. ``since`` is when the trial began."""

    task_id: str
    trial: int
    phase: str
    since: datetime

    def to_json(self) -> dict[str, JsonValue]:
        """Return the trial as JSON."""
        since = self.since.isoformat(timespec="seconds")
        return {"task_id": self.task_id, "trial": self.trial, "phase": self.phase, "since": since}


@dataclass(frozen=True, slots=True)
class RunningSession:
    """What a process is executing. ``since`` is when it began to execute tasks."""

    since: datetime
    tasks: tuple[RunningTask, ...] = ()


class RunningTasks:
    """An event sink and context manager that keeps ``running.json`` of a run up to date, and removes it at the end.

    Two writes of ``running.json`` are at least ``seconds`` apart. If ``seconds`` is 0, every change is written
    immediately.
    """

    def __init__(self, directory: Path, seconds: float = 0.0) -> None:
        self._path = directory / RUNNING
        self._seconds = seconds
        self._changed, self._ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._write_changes, name="securebench: running", daemon=True)
        self._since = datetime.now(UTC)
        self._tasks: dict[TrialId, RunningTask] = {}

    def __call__(self, event: Event) -> None:
        """Record that the run begins to execute tasks, or that a task starts, reaches its verifier or ends.

        Other events are ignored. If the constructor's argument ``seconds`` is 0, the call also writes ``running.json``,
        and raises ``OSError`` if the file cannot be written. If ``seconds`` is positive, a thread writes the file.
        """
        match event:
            case RunStart():
                self._since = datetime.now(UTC)
            case TaskStart():
                self._tasks[event.trial_id] = RunningTask(*event.trial_id, "agent", datetime.now(UTC))
            case VerifierStart():
                self._tasks[event.trial_id] = replace(self._tasks[event.trial_id], phase="verifier")
            case TaskDone():
                self._tasks.pop(event.trial_id, None)
            case _:
                return
        if self._seconds:
            self._changed.set()
        else:
            self._write()

    def _write_changes(self) -> None:
        with suppress(OSError):  # nothing depends on the file
            while self._changed.wait() and not self._ended.is_set():
                self._changed.clear()
                self._write()
                self._ended.wait(self._seconds)  # changes during this time share the next write

    def _write(self) -> None:
        content = {
            "since": self._since.isoformat(timespec="seconds"),
            "tasks": [task.to_json() for task in list(self._tasks.values())],
        }
        beside = temporary_name(self._path)
        beside.write_text(json.dumps(content), encoding="ascii")
        beside.replace(self._path)

    def __enter__(self) -> Self:
        if self._seconds:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._seconds:
            self._ended.set()
            self._changed.set()
            self._thread.join()
        with suppress(OSError):
            temporary_name(self._path).unlink(missing_ok=True)
            self._path.unlink(missing_ok=True)


def read_running(directory: Path) -> RunningSession | None:
    """Return what a run is executing; ``None`` if the file is missing or invalid."""
    try:
        value: Any = decode_json(read_text(directory / RUNNING, "list of running tasks", _MAX_BYTES)[0])[0]
        tasks = tuple(_task(task) for task in value["tasks"])
        return RunningSession(_time(value["since"]), tasks)
    except (ConfigError, UnfitJsonError, KeyError, TypeError, ValueError, OverflowError):
        return None


def _task(value: Any) -> RunningTask:
    task_id, trial, phase = value["task_id"], value["trial"], value["phase"]
    if not isinstance(task_id, str) or type(trial) is not int or phase not in _PHASES:
        raise TypeError
    return RunningTask(task_id, trial, phase, _time(value["since"]))


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)
