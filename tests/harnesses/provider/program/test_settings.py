"""Settings of declared agents, such as effort and prompts: how programs get them, and what is recorded."""

from __future__ import annotations

import hashlib
import itertools
import json
import tomllib
from typing import TYPE_CHECKING, Any

import pytest

from securebench.errors import ConfigError
from securebench.harnesses.agent_directory import AGENT_TARGET
from securebench.harnesses.provider.harness import Call, ProviderHarness
from securebench.tester_config import ProviderSettings
from securebench.tester_config.settings import McpServer

if TYPE_CHECKING:
    from pathlib import Path

CALL = Call(executable="agent", base_url="http://127.0.0.1:8788/v1", key_name="KEY", prompt="Do it.")
TEXT = 'Say "hé" and {model}.\n-\x7f-\n'
SERVERS = {"tools-1": McpServer(command=("python3", f"{AGENT_TARGET}/tools.py", 'a"b'), environment={"MODE": "x=y"})}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Any]:
    """Return the settings that both Codex and Claude Code support, and write the files that they name."""
    for name in ("system", "instructions"):
        (tmp_path / name).write_text(f"{name}: {TEXT}")
    return {
        "model": "m",
        "effort": "high",
        "system_prompt_file": tmp_path / "system",
        "instructions_file": tmp_path / "instructions",
        "mcp_servers": SERVERS,
        "extra_arguments": ("--further", "{model}"),
    }


def harness(name: str, settings: dict[str, Any]) -> ProviderHarness:
    """Return the harness of a declared agent."""
    return ProviderHarness(name, ProviderSettings(**settings))


def test_codex_gets_its_settings(files: dict[str, Any]) -> None:
    """Codex gets texts and servers as TOML values. Extra arguments come unchanged after all other options."""
    argv = harness("codex", files).argv(CALL)
    assert argv[-4:] == ("--further", "{model}", "--", "Do it.")
    found: dict[str, Any] = {}
    for flag, setting in itertools.pairwise(argv):
        if flag == "-c":
            found |= tomllib.loads(setting)
    assert found["model_reasoning_effort"] == "high"
    assert (found["instructions"], found["developer_instructions"]) == (f"system: {TEXT}", f"instructions: {TEXT}")
    server = {"command": "python3", "args": ["/opt/securebench/agent/tools.py", 'a"b'], "env": {"MODE": "x=y"}}
    assert found["mcp_servers"] == {"tools-1": server}


def test_claude_code_gets_its_settings(files: dict[str, Any]) -> None:
    """Each setting is an option. A text is in the same argument as its option, so it may begin with a dash."""
    argv = harness("claude_code", {**files, "max_turns": 7, "allowed_tools": ("Bash", "Read")}).argv(CALL)
    pairs = dict(itertools.pairwise(argv))
    assert (pairs["--effort"], pairs["--max-turns"], pairs["--tools"]) == ("high", "7", "Bash,Read")
    assert f"--system-prompt=system: {TEXT}" in argv
    assert f"--append-system-prompt=instructions: {TEXT}" in argv
    assert json.loads(pairs["--mcp-config"])["mcpServers"]["tools-1"]["env"] == {"MODE": "x=y"}
    assert argv[-6:] == ("--further", "{model}", "--model", "m", "--", "Do it.")


def test_settings_are_recorded(files: dict[str, Any]) -> None:
    """The identity contains all optional settings. Without optional settings, it is empty.

    Of a file it contains only length and digest, and of a server's variable only the name.
    """
    settings = harness("codex", files)._settings.identity()["settings"]
    text = f"system: {TEXT}"
    assert isinstance(settings, dict)
    assert settings["system_prompt"] == {"characters": len(text), "sha256": hashlib.sha256(text.encode()).hexdigest()}
    assert settings["mcp_servers"] == {
        "tools-1": {"command": ["python3", "/opt/securebench/agent/tools.py", 'a"b'], "environment": ["MODE"]}
    }
    assert (settings["effort"], settings["extra_arguments"]) == ("high", ["--further", "{model}"])
    assert settings.keys() == {"effort", "system_prompt", "instructions", "mcp_servers", "extra_arguments"}
    assert harness("codex", {"model": "m"})._settings.identity() == {}


@pytest.mark.parametrize(("key", "value"), [("max_turns", 3), ("allowed_tools", ("Bash",))])
def test_a_setting_that_a_program_lacks_is_refused(key: str, value: object) -> None:
    """An unsupported setting is refused: if it were ignored, a run would be reported with a setting that it lacked."""
    with pytest.raises(ConfigError, match=f"harness.config.{key}") as raised:
        harness("codex", {"model": "m", key: value})
    assert raised.value.code == "setting-unsupported"


def test_a_text_must_fit_into_an_argument(tmp_path: Path) -> None:
    """A text is refused if it is too large for one argument of Linux, or becomes too large when it is escaped."""
    for text in ("x" * 120_001, "\n" * 60_001):
        (tmp_path / "text").write_text(text)
        with pytest.raises(ConfigError) as raised:
            harness("codex", {"model": "m", "instructions_file": tmp_path / "text"})
        assert raised.value.code == "file-too-large"


def test_files_of_servers_are_mounted(tmp_path: Path) -> None:
    """The agent directory, with the files of MCP servers, is mounted read-only, as for a ``command`` agent."""
    tmp_path.chmod(0o755)
    (mount,) = harness("codex", {"model": "m", "agent_dir": tmp_path})._agent_mounts
    assert (mount.source, mount.target, mount.read_only) == (tmp_path, AGENT_TARGET, True)
