"""What commands and agents print, shown as it comes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from securebench.progress import EventKind
from securebench.results.trace import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from securebench.progress import Event

_CLIP: Final = 400
"""Characters of a command's output that are shown. The record has more."""


class CommandOutputSink:
    """Shows each sandbox command of an agent and the beginning of what it printed, for ``--show-command-output``."""

    def __init__(self, echo: Callable[[str], None]) -> None:
        self._echo = echo

    def __call__(self, event: Event) -> None:
        """Show one event."""
        if event.kind is EventKind.SANDBOX_COMMAND:
            self._echo(f"  {shown(event.task_id)} $ {clipped(str(event.data['command']))}")
        elif event.kind is EventKind.SANDBOX_RESULT:
            end = "timed out" if event.data["timed_out"] else f"exit {event.data['exit_code']}"
            self._echo(f"  {shown(event.task_id)} -> {end}")
            self._echo_lines(clipped(str(event.data["output"])))

    def _echo_lines(self, text: str) -> None:
        for line in text.splitlines():
            self._echo(f"    | {line}")


class AgentOutputSink:
    """Shows what agents say, line by line, for ``--show-agent-output``."""

    def __init__(self, echo: Callable[[str], None]) -> None:
        self._echo = echo

    def __call__(self, event: Event) -> None:
        """Show one event."""
        if event.kind is EventKind.AGENT_OUTPUT:
            for line in printable(str(event.data.get("text", ""))).splitlines():
                self._echo(f"  {shown(event.task_id)} | {line}")


def clipped(text: str) -> str:
    """Return the beginning of ``text``, safe for a terminal."""
    return printable(text[:_CLIP]) + ("…" if len(text) > _CLIP else "")


def shown(task_id: str) -> str:
    """Return a task id, safe for a terminal and on one line."""
    return printable(task_id).replace("\n", "\\n").replace("\t", "\\t")
