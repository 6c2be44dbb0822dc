"""What commands and agents print, shown as it comes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from securebench.cli.views.output import AgentOutputSink, CommandOutputSink
from securebench.progress import AgentOutput, Event, SandboxCommand, SandboxResult

if TYPE_CHECKING:
    from collections.abc import Callable


def printed(make: Callable[[Callable[[str], None]], Callable[[Event], None]], *events: Event) -> list[str]:
    """Return what a sink tells of these events."""
    lines: list[str] = []
    sink = make(lines.append)
    for event in events:
        sink(event)
    return lines


def result(**changes: Any) -> Event:
    """Return the end of a command."""
    return replace(
        SandboxResult(task_id="t", exit_code=0, timed_out=False, duration_seconds=1.0, output="one\ntwo\n"), **changes
    )


def test_commands() -> None:
    """A command is shown with how it ended and what it printed; other events are not."""
    command = SandboxCommand(task_id="t", command="python3 agent.py")
    lines = printed(CommandOutputSink, command, agent_output("x"), result())
    assert lines == ["  t $ python3 agent.py", "  t -> exit 0", "    | one", "    | two"]


def test_a_time_out() -> None:
    """A command that ran out of time says so."""
    assert printed(CommandOutputSink, result(timed_out=True, output="")) == ["  t -> timed out"]


def test_output_is_clipped_and_safe() -> None:
    """A long output is cut, and nothing in it is obeyed (M13)."""
    lines = printed(CommandOutputSink, result(output="\x1b[2J" + "x" * 5000))
    assert len("".join(lines)) < 500
    assert "\x1b" not in "".join(lines)
    assert lines[-1].endswith("…")


def agent_output(text: str, stream: str = "stdout") -> Event:
    """Return the event of an agent that said ``text``."""
    return AgentOutput(task_id="t", text=text, stream=stream)


def test_of_a_long_line_the_beginning_is_shown() -> None:
    """A program that tells of a whole file in one line floods no terminal; what comes after that line is shown."""
    lines = printed(
        AgentOutputSink,
        agent_output("x" * 16384 + "z\nnext\n"),
        agent_output("error\n", "stderr"),
        agent_output("last"),
    )
    assert [line[:9] for line in lines] == ["  t | xxx", "  t | nex", "  t | err", "  t | las"]
    assert len(lines[0]) < 2100
    assert lines[0].endswith("…")


def test_agents() -> None:
    """What agents say is shown line by line, whatever it holds; other events are not."""
    output = AgentOutput(task_id="t\n", text="one\ntwo\x1b[2J\n", stream="stdout")
    assert printed(AgentOutputSink, output, result()) == ["  t\\n | one", "  t\\n | two\\x1b[2J"]
