"""Runs of packs by the real agent programs, with a scripted model behind the real relay."""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pytest
from ruamel.yaml import YAML

from benchmarks.packs import BENCHMARKS
from pack_files import row, write_pack
from securebench.egress.gateway import Gateway
from securebench.tester_config import load_tester_config
from securebench.tester_run import RunOptions, run_benchmark
from securebench.tester_run.options import RunParts

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from securebench.egress.rules import ProxyRules
    from securebench.results.summary import TesterRunSummary
    from securebench.sandboxes.base import SandboxDriver
    from securebench.testing.provider import ScriptedProvider

PROGRAMS: Final = ("codex", "claude_code")
COMMAND: Final = "command"
"""The command harness, which runs the agent program printed in the documentation, with a provider."""
PLAIN_MODEL: Final = "model"
"""The model harness, which has no agent program."""
every_agent = pytest.mark.parametrize(
    "program",
    [
        pytest.param("codex", marks=pytest.mark.agents),
        pytest.param("claude_code", marks=[pytest.mark.agents, pytest.mark.long]),  # takes three times as long
        COMMAND,
        pytest.param(PLAIN_MODEL, marks=pytest.mark.long),
    ],
)
MODEL: Final = "scripted-model"
APIS: Final = {
    "codex": "openai",
    "claude_code": "anthropic",
    COMMAND: "chat_completions",
    PLAIN_MODEL: "chat_completions",
}
KEYS: Final = {
    "codex": "OPENAI_API_KEY",
    "claude_code": "ANTHROPIC_API_KEY",
    COMMAND: "OPENAI_API_KEY",
    PLAIN_MODEL: "OPENAI_API_KEY",
}
_OF_ALL_HARNESSES: Final = {"allowed_domains", "timeout_seconds", "artifact_path"}
CANARY: Final = f"sk-canary-{secrets.token_hex(8)}"
"""The key of every run in this process. It must not be found anywhere except at the provider.

It is random, because a test searches all processes of the machine for it, and other test processes may run there.
"""


@dataclass(frozen=True, kw_only=True)
class Agent:
    """An agent program with a provider.

    ``config`` is added to ``harness.config``, ``env`` is ``harness.env``, and ``limits`` is ``sandbox.limits``.
    """

    program: str
    provider: ScriptedProvider
    config: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, Any] = field(default_factory=dict)
    env: list[str] = field(default_factory=list)
    code: str = ""
    """The Python program that the command harness runs; if empty, :func:`documented_agent`."""
    has_key: bool = True

    def harness(self, root: Path) -> dict[str, Any]:
        """Return the ``harness`` of a tester configuration for this agent. Its files are written below ``root``."""
        if self.program == COMMAND:
            return {"type": COMMAND, "env": self.env, "config": self._command(root)}
        given = {"dialect": APIS[PLAIN_MODEL]} if self.program == PLAIN_MODEL else {}
        config = {**given, "model": MODEL, "base_url": f"{self.provider.url}/v1", "timeout_seconds": 90, **self.config}
        config = {name: value for name, value in config.items() if value is not None}
        return {"type": self.program, "env": self.env, "config": config}

    def _command(self, root: Path) -> dict[str, Any]:
        """Return the ``config`` of the command harness. Settings that not all harnesses have go into ``provider``."""
        directory = root / "agent"
        directory.mkdir(exist_ok=True)
        (directory / "agent.py").write_text(self.code or documented_agent())
        directory.chmod(0o755)
        (directory / "agent.py").chmod(0o644)
        own = {name: value for name, value in self.config.items() if name in _OF_ALL_HARNESSES}
        given = {name: value for name, value in self.config.items() if name not in own}
        provider = {"dialect": APIS[COMMAND], "model": MODEL, "base_url": f"{self.provider.url}/v1", **given}
        command = ["python3", "/opt/securebench/agent/agent.py"]
        return {"command": command, "agent_dir": str(directory), "timeout_seconds": 90, "provider": provider, **own}

    def variables(self) -> dict[str, str]:
        """Return the environment of a run: this process's, with the canary as the provider's key if ``has_key``."""
        return {**os.environ, **({KEYS.get(self.program, "OPENAI_API_KEY"): CANARY} if self.has_key else {})}


def documented_agent() -> str:
    """Return the agent program that is printed in ``docs/how-to/bring-an-agent.md``."""
    page = (BENCHMARKS.parent / "docs/how-to/bring-an-agent.md").read_text(encoding="utf-8")
    program: str
    (program,) = (code for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "urllib" in code)
    return program


def short_answers(root: Path, *ids: str) -> tuple[Path, Path]:
    """Write a pack with a question for each of ``ids``, by default one; return the paths of its manifest and tasks."""
    (root / "pack").mkdir(exist_ok=True)
    return write_pack(root / "pack", *(row("short_answer", id=name) for name in ids or ("short_answer/1",)))


def in_world(rules: ProxyRules) -> RunParts:
    """Return the parts of a run whose gateway uses ``rules``, so that a test decides where connections go."""
    return RunParts(make_gateway=lambda log: Gateway(log, rules=rules))


@dataclass(frozen=True)
class Done:
    """A run that has ended: its exit code, its output and its run directory."""

    code: int
    output: str
    directory: Path

    @property
    def records(self) -> list[dict[str, Any]]:
        """The records, in the order in which the tasks ended."""
        path = self.directory / "candidates.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def statuses(self) -> dict[str, str]:
        """The status of each task."""
        return {record["task_id"]: record["verification_status"] for record in self.records}

    @property
    def egress(self) -> list[dict[str, Any]]:
        """The egress decisions of the run."""
        path = self.directory / "egress.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def write_tester(root: Path, pack: str | tuple[Path, Path], agent: Agent, driver: SandboxDriver) -> Path:
    """Write a tester configuration, and return its path. It is JSON, which is also YAML.

    If ``pack`` names an example pack, the configuration in that pack for the agent's program is used.
    """
    info = driver.info()
    config = _of_pack(pack, agent) if isinstance(pack, str) else _for_files(pack, agent, root)
    config["run"]["output_dir"] = str(root / "out")
    config["sandbox"] = {
        "driver": info.name,
        **({"runtime": info.runtime} if info.name == "oci" else {}),
        "limits": dict(agent.limits),
    }
    path = root / "tester.yaml"
    path.write_text(json.dumps(config, indent=1))
    return path


def _of_pack(pack: str, agent: Agent) -> dict[str, Any]:
    """Return the example pack's configuration for the agent's program, with the URL of the scripted provider."""
    directory = BENCHMARKS / pack
    config: dict[str, Any] = YAML(typ="safe").load(directory / f"{agent.program}.yaml")
    config["benchmark"] = {name: str(directory / path) for name, path in config["benchmark"].items()}
    config["harness"]["config"] |= {"base_url": f"{agent.provider.url}/v1", **agent.config}
    return config


def _for_files(files: tuple[Path, Path], agent: Agent, root: Path) -> dict[str, Any]:
    return {
        "schema_version": "0.2",
        "run": {"id": "real-agents"},
        "benchmark": {"manifest": str(files[0]), "tasks": str(files[1])},
        "harness": agent.harness(root),
    }


def run(
    root: Path, pack: str | tuple[Path, Path], agent: Agent, driver: SandboxDriver, *arguments: str, workers: int = 2
) -> Done:
    """Run a pack from the command line, as a tester does."""
    tester = write_tester(root, pack, agent, driver)
    done = subprocess.run(
        [sys.executable, "-m", "securebench", "run", str(tester), "--workers", str(workers), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=agent.variables(),
    )
    return Done(done.returncode, done.stdout + done.stderr, root / "out")


@dataclass(frozen=True)
class Here(Done):
    """A run that was executed in this process."""

    summary: TesterRunSummary


def run_here(
    root: Path,
    pack: str | tuple[Path, Path],
    agent: Agent,
    driver: SandboxDriver,
    *,
    workers: int = 6,
    parts: RunParts | None = None,
) -> Here:
    """Run a pack in this process, so that a test can replace parts of the run."""
    notes: list[str] = []
    config = load_tester_config(write_tester(root, pack, agent, driver))
    options = RunOptions(workers=workers, variables=agent.variables(), notify=notes.append)
    summary = run_benchmark(config, options, parts=parts)
    return Here(0, "\n".join(notes), root / "out", summary)
