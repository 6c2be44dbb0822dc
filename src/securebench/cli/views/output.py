"""Sinks that show the output of commands and agents live."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from securebench.printable import printable, printable_line
from securebench.progress import AgentOutput, SandboxCommand, SandboxResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from securebench.progress import Event
    from securebench.trials import TrialId

_CLIP: Final = 400
"""How many characters of a command, and of its output, are shown."""

_LINE: Final = 2000
"""How many characters of a line are shown, in the output of an agent or of a verifier's command."""


class CommandOutputSink:
    """Shows each sandbox command and how it ended, for ``--show-command-output``.

    Of an agent's command, the arguments and the beginning of the output are shown, too. Of a verifier's command, only
    the program's name and how it ended are shown.
    """

    def __init__(self, echo: Callable[[str], None]) -> None:
        self._echo = echo

    def __call__(self, event: Event) -> None:
        """Show one event."""
        if isinstance(event, SandboxCommand):
            self._echo(f"  {printable_line(str(event.trial_id))} $ {clipped(event.command)}")
        elif isinstance(event, SandboxResult):
            end = "timed out" if event.timed_out else f"exit {event.exit_code}"
            self._echo(f"  {printable_line(str(event.trial_id))} -> {end}")
            self._echo_lines(clipped(event.output))

    def _echo_lines(self, text: str) -> None:
        for line in text.splitlines():
            self._echo(f"    | {line}")


class AgentOutputSink:
    """Shows the output of agents line by line, for ``--show-agent-output``.

    Long lines are cut, because a program may print a whole file in one line. ``agent-trace.log`` has the full lines.
    """

    def __init__(self, echo: Callable[[str], None]) -> None:
        self._echo = echo

    def __call__(self, event: Event) -> None:
        """Show one event, which holds whole lines."""
        if isinstance(event, AgentOutput):
            for line in filter(None, event.text.split("\n")):
                self._echo(f"  {printable_line(str(event.trial_id))} | {clipped(line, _LINE)}")


def show_verifier_output(echo: Callable[[str], None], trial: TrialId, text: str) -> None:
    """Show the output of a verifier's commands line by line, for ``--show-verifier-output``."""
    for line in filter(None, text.split("\n")):
        echo(f"  {printable_line(str(trial))} | {clipped(line, _LINE)}")


def clipped(text: str, room: int = _CLIP) -> str:
    """Return the beginning of ``text``, safe for a terminal."""
    return printable(text[:room]) + ("…" if len(text) > room else "")
