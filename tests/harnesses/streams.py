"""Events as Codex and Claude Code print them, from runs with scripted models, reduced to what the parsers read."""

from __future__ import annotations

import json
from typing import Any


def lines(*events: dict[str, Any]) -> bytes:
    """Return ``events`` as a program prints them: one JSON object per line."""
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


def codex_item(kind: str, *, what: str = "completed", **fields: Any) -> dict[str, Any]:
    """Return the event that Codex prints for an item. ``what`` is ``started`` or ``completed``."""
    return {"type": f"item.{what}", "item": {"id": "item_1", "type": kind, **fields}}


CODEX_USAGE = {
    "input_tokens": 2400,
    "cached_input_tokens": 2000,
    "cache_write_input_tokens": 0,
    "output_tokens": 68,
    "reasoning_output_tokens": 20,
}
CODEX_BEGIN = ({"type": "thread.started", "thread_id": "01a2"}, {"type": "turn.started"})
CODEX_WARNING = codex_item("error", message="Model metadata for `m` not found.")
CODEX_COMMAND = codex_item(
    "command_execution",
    command="/bin/bash -lc 'echo 42'",
    aggregated_output="42\n",
    exit_code=0,
    status="completed",
)
CODEX_MESSAGE = codex_item("agent_message", text="done")
CODEX_END = {"type": "turn.completed", "usage": CODEX_USAGE}
CODEX_WORKED = (*CODEX_BEGIN, CODEX_WARNING, CODEX_COMMAND, CODEX_MESSAGE, CODEX_END)


def codex_failed(message: str) -> tuple[dict[str, Any], ...]:
    """Return the events that Codex prints if its provider keeps failing."""
    retry = {"type": "error", "message": f"Reconnecting... 1/2 ({message})"}
    return (
        *CODEX_BEGIN,
        CODEX_WARNING,
        retry,
        {"type": "error", "message": message},
        {"type": "turn.failed", "error": {"message": message}},
    )


CLAUDE_INIT = {"type": "system", "subtype": "init", "cwd": "/workspace", "model": "claude-sonnet-5"}
CLAUDE_TOOL = {
    "type": "assistant",
    "message": {
        "model": "claude-sonnet-5",
        "content": [
            {"type": "thinking", "thinking": "hm"},
            {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "echo 42", "description": "a step"}},
        ],
    },
}
CLAUDE_RESULT = {
    "type": "user",
    "message": {
        "role": "user",
        "content": [{"tool_use_id": "t1", "type": "tool_result", "content": "42", "is_error": False}],
    },
}
CLAUDE_MESSAGE = {
    "type": "assistant",
    "message": {"model": "claude-sonnet-5", "content": [{"type": "text", "text": "done"}]},
}


def claude_end(**fields: Any) -> dict[str, Any]:
    """Return the last event of Claude Code. By default, it reports success. ``fields`` replace its fields."""
    return {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "api_error_status": None,
        "num_turns": 2,
        "result": "done",
        "total_cost_usd": 0.00282,
        "usage": {
            "input_tokens": 400,
            "cache_creation_input_tokens": 3,
            "cache_read_input_tokens": 2000,
            "output_tokens": 68,
        },
        "permission_denials": [],
        **fields,
    }


CLAUDE_WORKED = (CLAUDE_INIT, CLAUDE_TOOL, CLAUDE_RESULT, CLAUDE_MESSAGE, claude_end())


def claude_failed(status: int | None, message: str) -> tuple[dict[str, Any], ...]:
    """Return the events that Claude Code prints if its provider keeps failing."""
    synthetic = {"model": "<synthetic>", "content": [{"type": "text", "text": message}]}
    return (
        CLAUDE_INIT,
        {"type": "system", "subtype": "api_retry", "attempt": 1, "error_status": status, "error": "server_error"},
        {"type": "assistant", "message": synthetic},
        claude_end(is_error=True, api_error_status=status, result=message, usage={}, num_turns=1),
    )
