"""Live output of commands and agents."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from securebench.cli.views.output import AgentOutputSink, CommandOutputSink
from securebench.progress import AgentOutput, Event, SandboxCommand, SandboxResult

if TYPE_CHECKING:
    from collections.abc import Callable


def printed(make: Callable[[Callable[[str], None]], Callable[[Event], None]], *events: Event) -> list[str]:
    """Return the lines that a sink prints for these events."""
    lines: list[str] = []
    sink = make(lines.append)
    for event in events:
        sink(event)
    return lines


def result(**changes: Any) -> Event:
    """Return the event for the end of a command."""
    return replace(
        SandboxResult(task_id="t", exit_code=0, timed_out=False, duration_seconds=1.0, output="one\ntwo\n"), **changes
    )


def test_commands() -> None:
    """A command is shown with its exit code and output. Output of agents is not shown."""
    command = SandboxCommand(task_id="t", command="python3 agent.py")
    lines = printed(CommandOutputSink, command, agent_output("x"), result())
    assert lines == ["  t $ python3 agent.py", "  t -> exit 0", "    | one", "    | two"]


def test_a_time_out() -> None:
    """A command that timed out is shown as such."""
    assert printed(CommandOutputSink, result(timed_out=True, output="")) == ["  t -> timed out"]


def test_output_is_clipped_and_safe() -> None:
    """A long output is cut, and control characters in it are escaped (M13)."""
    lines = printed(CommandOutputSink, result(output="\x1b[2J" + "x" * 5000))
    assert len("".join(lines)) < 500
    assert "\x1b" not in "".join(lines)
    assert lines[-1].endswith("…")


def agent_output(text: str, stream: str = "stdout") -> Event:
    """Return the event for output ``text`` of an agent."""
    return AgentOutput(task_id="t", text=text, stream=stream)


def test_of_a_long_line_the_beginning_is_shown() -> None:
    """A line that is too long, such as a whole file, is cut. The lines after it are shown."""
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
    """The output of agents is shown line by line with control characters escaped. Commands are not shown."""
    output = AgentOutput(task_id="t\n", text="one\ntwo\x1b[2J\n", stream="stdout")
    assert printed(AgentOutputSink, output, result()) == ["  t\\n | one", "  t\\n | two\\x1b[2J"]
