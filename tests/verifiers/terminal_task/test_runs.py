"""Complete runs of a terminal task: what is used to judge it reaches neither the agent nor the files of the run."""

from __future__ import annotations

import base64
import json
import secrets
from typing import TYPE_CHECKING

import pytest

from benchmarks.playing import run

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.sandboxes.base import SandboxDriver

_TESTER = """\
schema_version: "0.2"
run: {id: lanes, output_dir: out}
benchmark: {manifest: pack/manifest.yaml, tasks: pack/tasks.jsonl}
harness:
  type: command
  config:
    command: [python3, /opt/securebench/agent/agent.py]
    agent_dir: agent
"""

_AGENT = """\
import os
needle = bytes.fromhex("NEEDLE")[::-1]
found = [name for name, value in os.environ.items() if needle in value.encode()]
for top in ("/app", "/opt", "/tmp", "/run", "/etc", "/proc/self", "/proc/1"):
    for directory, _, names in os.walk(top):
        for name in names:
            path = os.path.join(directory, name)
            try:
                if os.path.isfile(path) and needle in open(path, "rb").read(1 << 20):
                    found.append(path)
            except OSError:
                pass
open("found.txt", "w").write("".join(f"{path}\\n" for path in found))
"""

_CHECK = """\
import json, sys
print("CANARY")
print("CANARY", file=sys.stderr)
print(json.dumps({"found": open("found.txt").read(), "secret": "CANARY"}))
"""


@pytest.mark.parametrize("right", [True, False])
def test_nothing_that_judges_is_found_by_the_agent_or_written_down(
    driver: SandboxDriver, tmp_path: Path, right: bool
) -> None:
    """F13: a canary in evaluation inputs and hidden values is not found by the agent and is in no output of the run."""
    canary = f"canary{secrets.token_hex(16)}"
    pack, agent = tmp_path / "pack", tmp_path / "agent"
    (pack / "hidden").mkdir(parents=True)
    agent.mkdir()
    (pack / "manifest.yaml").write_text("id: lanes\nversion: 1\ndefaults: {family: terminal_task}\n")
    (pack / "hidden/check.py").write_text(_CHECK.replace("CANARY", canary))
    (agent / "agent.py").write_text(_AGENT.replace("NEEDLE", canary[::-1].encode().hex()))
    row = {
        "id": "lanes/one",
        "input": {"instructions": "Look around."},
        "environment": {"workdir": "/app"},
        "eval": {
            "checker": {"command": f"python3 securebench/evaluation_inputs/check.py # {canary}"},
            "test_files": {"path": "check.py"},
            "run_tests": {"note": canary},
            "expected_state": {"found": "" if right else "x", "secret": canary},
        },
    }
    (pack / "tasks.jsonl").write_text(json.dumps(row) + "\n")
    (record,) = run(_TESTER, driver, tmp_path)
    assert record["verification_status"] == ("passed" if right else "failed"), record
    assert record.get("failure_reason") == (None if right else "state_mismatch")
    written = [path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert len(written) > 3
    for form in (canary.encode(), canary.encode().hex().encode(), base64.b64encode(canary.encode())[:-4]):
        assert not any(form in content for content in [*written, (tmp_path / "said.txt").read_bytes()])
