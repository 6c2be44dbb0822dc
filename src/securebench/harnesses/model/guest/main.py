"""Answer a task in one turn, or work on it in a loop with a shell."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from securebench.harnesses.model.guest.apis import APIS, REFUSED, TRUNCATED
from securebench.harnesses.model.guest.client import ModelClient, emit
from securebench.harnesses.model.guest.prompts import assignment, fault_of, question
from securebench.harnesses.model.guest.shell import run_command

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.harnesses.model.guest.apis import ToolCall

SETUP: Final = "SECUREBENCH_MODEL_SETUP_"
"""The prefix of numbered variables. Joined in the order of the numbers, their values are the setup as JSON."""

_INVALID_CALL: Final = "The call is not valid: call the tool `shell` with one argument, `command`."
_UNFINISHED: Final = (
    "Your reply has no tool call, and is empty or incomplete. Call the tool, or say that the work is finished."
)
_THOUGHTS_END: Final = "</think>"


def main() -> None:
    """Run the task, and print a last event that says how it ended. Exits without that event if the provider fails."""
    names = sorted((name for name in os.environ if name.startswith(SETUP)), key=lambda name: int(name[len(SETUP) :]))
    setup = json.loads("".join(os.environ.pop(name) for name in names))
    task = json.loads(Path(os.environ["SECUREBENCH_TASK_FILE"]).read_text(encoding="utf-8"))
    client = ModelClient(APIS[setup["dialect"]](setup), setup["url"], setup["key"])
    end = _answer(client, setup, task) if setup["answer_file"] else _work(client, setup, task)
    emit("end", reason=end, turns=client.turns)


def _answer(client: ModelClient, setup: Mapping[str, Any], task: Mapping[str, Any]) -> str:
    """Write the model's answer to the answer file, unless it is empty or a refusal, and return how the task ended.

    If a complete reply has the wrong form, the model is asked again, up to ``retries`` times.
    """
    family = setup["family"]
    for example in setup["examples"]:
        client.api.say("user", question(family, example["input"]))
        client.api.say("assistant", example["answer"])
    client.api.say("user", question(family, task))
    client.show()
    for left in range(setup["retries"], -1, -1):
        reply = client.ask()
        if reply.stop == REFUSED:
            return REFUSED
        text = reply.text.rpartition(_THOUGHTS_END)[2].strip()
        fault = fault_of(family, text)
        if reply.stop or not fault or not left:
            break
        emit("malformed", text=fault)
        client.api.say("user", fault)
    if text:
        Path(setup["answer_file"]).write_text(text + "\n", encoding="utf-8", errors="replace")
    return reply.stop or ("malformed" if fault else "finished")


def _work(client: ModelClient, setup: Mapping[str, Any], task: Mapping[str, Any]) -> str:
    """Run the model's commands until it finishes, refuses, or has no turn or retry left. Return how the task ended."""
    seconds, faults = setup["command_timeout_seconds"], 0
    client.api.say("user", assignment(setup["instruction"], task, seconds))
    client.show()
    for _ in range(setup["max_turns"]):
        reply = client.ask(with_shell=True)
        if reply.stop == REFUSED:
            return REFUSED
        if reply.calls:
            client.api.results([(call, _run(call, seconds)) for call in reply.calls])
        if any(call.command for call in reply.calls):
            faults = 0
            continue
        if not reply.calls and reply.text.strip() and reply.stop != TRUNCATED:
            return "finished"
        if faults == setup["retries"]:
            return reply.stop or "malformed"
        faults += 1
        emit("malformed", text=_INVALID_CALL if reply.calls else _UNFINISHED)
        if not reply.calls:
            client.api.say("user", _UNFINISHED)
    return "out_of_turns"


def _run(call: ToolCall, seconds: float) -> str:
    if call.command is None:
        return _INVALID_CALL
    emit("command", command=call.command)
    output, code = run_command(call.command, seconds, os.environ)
    emit("result", output=output, exit_code=code)
    end = f"[killed after {seconds:g} seconds]" if code is None else f"[exit code {code}]"
    return f"{output}\n{end}"
