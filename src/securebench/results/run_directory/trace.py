"""``agent-trace.log``: the live output of a run's agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from securebench.fs.append_log import AppendLog
from securebench.printable import printable
from securebench.progress import AgentOutput

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.progress import Event


class TraceLog:
    """An event sink and context manager. Each line of the log starts with the id of a trial.

    The text of the events is already redacted. Unprintable characters are escaped, so that lines are safe to print on a
    terminal. Raises :class:`StorageError`.
    """

    def __init__(self, path: Path) -> None:
        self._log = AppendLog(path)

    def __call__(self, event: Event) -> None:
        """Write the output of an agent to the log. Other events are ignored."""
        if isinstance(event, AgentOutput):
            for line in event.text.split("\n"):
                if line:
                    text = f"[{event.trial_id}] {printable(line)}\n"
                    self._log.append(text.encode("utf-8", "backslashreplace"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._log.close()
