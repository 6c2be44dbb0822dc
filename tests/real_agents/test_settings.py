"""Settings such as effort, system prompt and MCP servers reach the model of each real agent program."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from real_agents.runs import MODEL, PROGRAMS, Agent, run, short_answers
from securebench.testing.provider import Say, ScriptedProvider, Shell
from securebench.testing.provider.scripts import READ_TASK

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.sandboxes.base import SandboxDriver

pytestmark = [
    pytest.mark.oci,
    pytest.mark.agents,
    pytest.mark.long,
    pytest.mark.usefixtures("_with_ports", "base_image"),
]

SERVER = """\
import json, os, sys
for line in sys.stdin:
    asked = json.loads(line)
    match asked["method"]:
        case "initialize":
            result = {"protocolVersion": asked["params"]["protocolVersion"], "capabilities": {"tools": {}},
                      "serverInfo": {"name": "notes", "version": "1"}}
        case "tools/list":
            result = {"tools": [{"name": os.environ["TOOL"], "description": "d", "inputSchema": {"type": "object"}}]}
        case _:
            continue
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


@pytest.mark.parametrize("program", PROGRAMS)
def test_settings_reach_the_model(program: str, oci_driver: SandboxDriver, tmp_path: Path) -> None:
    """Effort, system prompt, instructions and an MCP server's tool are in the requests. All settings are recorded."""
    directory = tmp_path / "agent"
    directory.mkdir()
    (directory / "notes.py").write_text(SERVER)
    (tmp_path / "system.md").write_text("You are MARK-SYSTEM.\n")
    (tmp_path / "instructions.md").write_text("Be MARK-INSTRUCTIONS.\n")
    for path in (directory, directory / "notes.py"):
        path.chmod(0o755)
    own: dict[str, dict[str, Any]] = {
        "codex": {"extra_arguments": ["-c", 'model_verbosity="high"']},
        "claude_code": {"max_turns": 20, "allowed_tools": ["Bash", "Read", "Write"]},
    }
    config: dict[str, Any] = {
        "effort": "high",
        "system_prompt_file": str(tmp_path / "system.md"),
        "instructions_file": str(tmp_path / "instructions.md"),
        "agent_dir": str(directory),
        "mcp_servers": {
            "notes": {"command": ["python3", "/opt/securebench/agent/notes.py"], "environment": {"TOOL": "remember"}}
        },
        **own[program],
    }
    script = (READ_TASK, Shell("echo 391 > candidate.txt"), Say("done"))
    with ScriptedProvider(script, models=(MODEL,)) as provider:
        done = run(
            tmp_path, short_answers(tmp_path), Agent(program=program, provider=provider, config=config), oci_driver
        )
        sent: list[Any] = [one.body for one in provider.requests if isinstance(one.body, dict) and "tools" in one.body]
    assert done.code == 0, done.output
    text = json.dumps(sent[-1])
    assert all(mark in text for mark in ("MARK-SYSTEM", "MARK-INSTRUCTIONS", "remember"))
    assert "high" in json.dumps(sent[-1].get("reasoning") or sent[-1].get("output_config"))
    (record,) = done.records
    assert record["candidate_text"].strip() == "391"
    settings = record["provenance"]["agent"]["settings"]
    assert settings.keys() == {"effort", "system_prompt", "instructions", "mcp_servers", *own[program]}
    header = json.loads((done.directory / "run.json").read_text())
    assert header["decisive"]["agent"]["settings"] == settings
    assert header["information"]["models"] == {MODEL: 1}
