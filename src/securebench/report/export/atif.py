"""Trajectories in the Agent Trajectory Interchange Format 1.7: one JSON file for each trial that has a trajectory."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from securebench.fs.durable import storage_errors, write_whole
from securebench.report.export.steps import MessageStep, NoteStep, ToolCallStep, steps_of, task_text
from securebench.trials import TrialId

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.report.export.steps import Step
    from securebench.results.read import RecordedRun
    from securebench.results.recorded_task import RecordedTask

_VERSION: Final = "ATIF-v1.7"
_THEN: Final = "repeat the export"


def write_atif(run: RecordedRun, directory: Path) -> int:
    """Write to ``directory`` the trajectory of each trial that has one. Return the number of trajectories.

    The first step is the task, as far as the record has it. Token counts and cost are those of the record.
    Raises :class:`StorageError`, and the errors of :meth:`RecordedRun.records` and :meth:`RecordedRun.trajectory`.
    """
    with storage_errors(directory, _THEN):
        directory.mkdir(parents=True, exist_ok=True)
    written = 0
    for record in run.records():
        if not isinstance(record.provenance.get("trajectory"), dict):
            continue
        path = directory / f"{TrialId(record.task_id, record.trial).directory}.json"
        content = json.dumps(_trajectory(run, record), indent=1)
        with storage_errors(path, _THEN):
            write_whole(path, content.encode("ascii"))
        written += 1
    return written


def _trajectory(run: RecordedRun, record: RecordedTask) -> dict[str, Any]:
    agent = record.provenance.get("agent")
    facts: dict[str, Any] = agent if isinstance(agent, dict) else {}
    model = next(iter(record.models), None)
    steps = [{"source": "user", "message": task_text(record)}, *map(_step, steps_of(run.trajectory(record)))]
    spent = record.spent
    metrics = {
        "total_prompt_tokens": spent.input_tokens if spent else None,
        "total_completion_tokens": spent.output_tokens if spent else None,
        "total_cost_usd": spent.cost_usd if spent else None,
        "total_steps": len(steps),
    }
    return {
        "schema_version": _VERSION,
        "session_id": record.run_id,
        "trajectory_id": f"{record.task_id}#{record.trial}",
        "agent": {
            "name": run.label,
            "version": str(facts.get("version", "unknown")),
            **({"model_name": model} if model else {}),
        },
        "steps": [{"step_id": number, **step} for number, step in enumerate(steps, start=1)],
        "final_metrics": {name: value for name, value in metrics.items() if value is not None},
        "extra": {
            "benchmark_id": record.benchmark_id,
            "task_id": record.task_id,
            "trial": record.trial,
            "verification_status": record.status.value,
        },
    }


def _step(step: Step) -> dict[str, Any]:
    match step:
        case MessageStep(text, is_thought=True):
            return {"source": "agent", "message": "", "reasoning_content": text}
        case MessageStep(text):
            return {"source": "agent", "message": text}
        case ToolCallStep(identifier, tool, command, output):
            call = {"tool_call_id": identifier, "function_name": tool, "arguments": {"command": command}}
            results = [] if output is None else [{"source_call_id": identifier, "content": output}]
            observation = {"observation": {"results": results}} if results else {}
            return {"source": "agent", "message": "", "tool_calls": [call], **observation}
        case NoteStep(text):
            return {"source": "system", "message": text}
