"""A run as an evaluation log of Inspect, in its documented JSON form (version 2)."""

from __future__ import annotations

import json
from typing import IO, TYPE_CHECKING, Any, Final

from securebench import __version__
from securebench.report.export.steps import MessageStep, NoteStep, ToolCallStep, steps_of, task_text
from securebench.results.records.record import VerificationStatus
from securebench.results.statistics import TaskResult, pass_at_1

if TYPE_CHECKING:
    from securebench.report.export.steps import Step
    from securebench.results.read import RecordedRun
    from securebench.results.recorded_task import RecordedTask

_SCORER: Final = "securebench"
_STATUS: Final = VerificationStatus


def write_inspect(run: RecordedRun, file: IO[str]) -> None:
    """Write one sample for each record. The accuracy is the mean pass rate over the tasks with a verdict.

    An infrastructure error is a sample with an error and without a score. Samples are written one by one.
    """
    counted: dict[str, list[int]] = {}
    epochs, total = 1, 0
    for record in run.records():
        task = counted.setdefault(record.task_id, [0, 0])
        if record.passed is not None:
            task[0] += record.passed
            task[1] += 1
        epochs, total = max(epochs, record.trial), total + 1
    estimate = pass_at_1(TaskResult(passed, scored) for passed, scored in counted.values())
    is_complete = total >= run.planned and all(scored for _, scored in counted.values())
    head = {
        "version": 2,
        "status": "success" if is_complete else "cancelled",
        "eval": _eval(run, list(counted), epochs),
        "plan": {"name": "plan", "steps": []},
        "results": {
            "total_samples": total,
            "completed_samples": sum(scored for _, scored in counted.values()),
            "scores": [
                {
                    "name": _SCORER,
                    "scorer": _SCORER,
                    "metrics": {"accuracy": {"name": "accuracy", "value": estimate.value}} if estimate else {},
                }
            ],
        },
        "stats": {"started_at": "", "completed_at": ""},
    }
    file.write(json.dumps(head)[:-1] + ', "samples": [')
    for number, record in enumerate(run.records()):
        file.write(("," if number else "") + "\n" + json.dumps(_sample(run, record)))
    file.write("\n]}\n")


def _eval(run: RecordedRun, ids: list[str], epochs: int) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "eval_id": run.header.nonce,
        "created": run.header.created_at,
        "task": run.benchmark_id,
        "task_id": run.benchmark_id,
        "dataset": {"name": run.benchmark_id, "samples": len(ids), "sample_ids": ids},
        "model": next(iter(run.models), "none"),
        "config": {"epochs": epochs},
        "packages": {"securebench": __version__},
        "metadata": {
            "agent": run.label,
            "selection": run.selection.describe() if run.selection else "the whole benchmark",
        },
    }


def _sample(run: RecordedRun, record: RecordedTask) -> dict[str, Any]:
    messages = [{"role": "user", "content": task_text(record)}]
    for step in steps_of(run.trajectory(record)):
        messages += _messages(step)
    sample: dict[str, Any] = {
        "id": record.task_id,
        "epoch": record.trial,
        "input": task_text(record),
        "target": "",
        "messages": messages,
        "output": {"model": next(iter(record.models), ""), "choices": [], "completion": record.candidate_text or ""},
        "metadata": {"family": record.family, "tags": list(record.tags)},
    }
    if record.started_at:
        sample["started_at"] = record.started_at.isoformat()
    if record.duration_seconds is not None:
        sample["total_time"] = record.duration_seconds
    if record.passed is not None:
        metadata = {
            "assurance": record.assurance.value if record.assurance else None,
            "reason": record.reason.value if record.reason else None,
        }
        answer, value = record.candidate_text or "", "C" if record.passed else "I"
        sample["scores"] = {_SCORER: {"value": value, "answer": answer, "metadata": metadata}}
    elif record.status is _STATUS.ERROR:
        sample["error"] = {"message": record.message, "traceback": "", "traceback_ansi": ""}
    return sample


def _messages(step: Step) -> list[dict[str, Any]]:
    match step:
        case MessageStep(text, is_thought=True):
            return [{"role": "assistant", "content": [{"type": "reasoning", "reasoning": text}]}]
        case MessageStep(text):
            return [{"role": "assistant", "content": text}]
        case ToolCallStep(identifier, tool, command, output):
            call = {"id": identifier, "function": tool, "arguments": {"command": command}}
            call_message = {"role": "assistant", "content": "", "tool_calls": [call]}
            result_message = {"role": "tool", "content": output or "", "tool_call_id": identifier, "function": tool}
            return [call_message, result_message]
        case NoteStep(text):
            return [{"role": "system", "content": text}]
