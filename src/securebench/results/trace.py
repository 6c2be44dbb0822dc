"""``agent-trace.log``: what the agents of a run said, as it came."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Self

from securebench.fs.durable import storage_errors
from securebench.progress import AgentOutput

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from securebench.progress import Event


class TraceLog:
    """A sink, and a context manager. Each line names its task; what it holds was redacted before it came here.

    Lines are escaped as JSON escapes them, so that the log can be shown on a terminal.
    """

    def __init__(self, path: Path) -> None:
        with storage_errors(path):
            descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        self._file = os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace", buffering=1)

    def __call__(self, event: Event) -> None:
        """Write down an event of an agent."""
        if isinstance(event, AgentOutput):
            for line in event.text.split("\n"):
                if line:
                    self._file.write(f"[{event.task_id}] {printable(line)}\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()


def printable(text: str) -> str:
    """Return ``text`` with everything that a terminal might obey written out; newlines and tabs stay."""
    return "".join(char if char.isprintable() or char in "\n\t" else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    return char.encode("unicode_escape", "surrogatepass").decode("ascii")
