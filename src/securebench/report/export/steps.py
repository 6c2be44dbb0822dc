"""An agent's recorded steps, in a form from which the export formats are made."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

    from securebench.resources import JsonValue
    from securebench.results.recorded_task import RecordedTask


@dataclass(slots=True)
class MessageStep:
    """What the agent wrote: a message, or a thought."""

    text: str
    is_thought: bool = False


@dataclass(slots=True)
class ToolCallStep:
    """A tool call of the agent. ``output`` is ``None`` if the trajectory has no result for the call."""

    id: str
    tool: str
    command: str
    output: str | None = None


@dataclass(slots=True)
class NoteStep:
    """A step outside the conversation.

    Either something else that the agent program reported, such as an error, or a note that steps are left out.
    """

    text: str


Step: TypeAlias = MessageStep | ToolCallStep | NoteStep


def steps_of(trajectory: Iterable[JsonValue]) -> list[Step]:
    """Return the steps of a recorded trajectory, without its usage reports.

    A result goes to the first command that has no result yet.
    """
    steps: list[Step] = []
    waiting: list[ToolCallStep] = []
    for value in trajectory:
        step: dict[str, Any] = value if isinstance(value, dict) else {}
        match step.get("kind"):
            case "message" | "thought" as kind:
                steps.append(MessageStep(_text(step, "text"), is_thought=kind == "thought"))
            case "command":
                called = ToolCallStep(f"call-{len(steps) + 1}", _text(step, "tool") or "shell", _text(step, "command"))
                waiting.append(called)
                steps.append(called)
            case "change":
                steps.append(ToolCallStep(f"call-{len(steps) + 1}", "file_change", _text(step, "text"), ""))
            case "result" if waiting:
                waiting.pop(0).output = _text(step, "output")
            case "usage":
                pass
            case _:
                steps.append(NoteStep(_text(step, "text") or json.dumps(value)))
    return steps


def task_text(record: RecordedTask) -> str:
    """Return the public values of the task, as far as the record has them."""
    summary = record.raw.get("resource_summary")
    entries = [entry for entry in summary if isinstance(entry, dict)] if isinstance(summary, list) else []
    public = [entry for entry in entries if entry.get("visibility") == "public" and entry.get("value") is not None]
    return "\n\n".join(f"{entry.get('name')}: {_shown(entry['value'])}" for entry in public)


def _text(step: dict[str, Any], name: str) -> str:
    value = step.get(name)
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)


def _shown(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value)
