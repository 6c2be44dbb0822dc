"""The provenance of a verdict."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from securebench.errors import ConfigError
from securebench.harnesses.command import CommandHarnessProducer
from securebench.results.records.provenance import (
    agent_digest,
    driver_provenance,
    framework_provenance,
    harness_provenance,
    json_digest,
)
from securebench.sandboxes.base import DriverInfo
from securebench.tester_config import CommandConfig, HarnessConfig, ModelConfig, ProviderSettings

if TYPE_CHECKING:
    from pathlib import Path

PRODUCER = CommandHarnessProducer(CommandConfig(command=("agent",)))


@pytest.fixture
def agent(tmp_path: Path) -> Path:
    """Return an agent's directory with two files and a link."""
    root = tmp_path / "agent"
    (root / "lib").mkdir(parents=True)
    (root / "agent.py").write_text("print('hello')\n")
    (root / "lib" / "tool.py").write_text("")
    (root / "link").symlink_to("agent.py")
    return root


def command(agent_dir: Path | None = None) -> HarnessConfig:
    """Return the configuration of a command harness."""
    return HarnessConfig("command", ("KEY",), CommandConfig(command=("agent",), agent_dir=agent_dir))


def test_what_is_no_file_is_refused(agent: Path) -> None:
    """An agent's directory with a pipe is refused, because reading the pipe would block."""
    os.mkfifo(agent / "pipe")
    with pytest.raises(ConfigError) as caught:
        agent_digest(agent)
    assert caught.value.code == "agent-dir-unreadable"


def test_a_missing_directory_is_refused(tmp_path: Path) -> None:
    """If the agent's directory does not exist, the error names it."""
    with pytest.raises(ConfigError, match="missing"):
        agent_digest(tmp_path / "missing")


def test_harness(agent: Path) -> None:
    """The digest of a harness covers settings, names of variables and the agent's files, but not their location."""
    one = harness_provenance(command(agent), PRODUCER)
    assert one["type"] == "command"
    assert harness_provenance(command(agent.rename(agent.parent / "elsewhere")), PRODUCER) == one
    others = [
        command(),
        replace(command(agent.parent / "elsewhere"), env=("OTHER",)),
        HarnessConfig("command", ("KEY",), CommandConfig(command=("other",), agent_dir=agent.parent / "elsewhere")),
        HarnessConfig(
            "command",
            ("KEY",),
            CommandConfig(command=("agent",), agent_dir=agent.parent / "elsewhere", timeout_seconds=1.0),
        ),
    ]
    digests = {str(harness_provenance(other, PRODUCER)["digest"]) for other in others}
    assert len(digests) == len(others)
    assert one["digest"] not in digests


def test_where_texts_for_a_model_are_does_not_count(tmp_path: Path) -> None:
    """The paths of examples and instructions do not change a harness's digest: their contents are recorded instead."""
    (tmp_path / "prompt").write_text("Be brief.")
    configs = [
        ModelConfig(
            dialect="messages", model="m", temperature=heat, system_prompt_file=tmp_path / "prompt", examples=path
        )
        for heat, path in ((0, tmp_path / "a"), (0, tmp_path / "b"), (1, tmp_path / "a"))
    ]
    one, same, other = (harness_provenance(HarnessConfig("model", (), config), PRODUCER) for config in configs)
    assert one["digest"] == same["digest"] != other["digest"]
    agents = [ProviderSettings(model="m", instructions_file=tmp_path / name) for name in "ab"]
    digests = {harness_provenance(HarnessConfig("codex", (), config), PRODUCER)["digest"] for config in agents}
    assert len(digests) == 1


def test_framework() -> None:
    """The framework's provenance has its version and the digest of its sources, and is computed once (M17)."""
    found = framework_provenance()
    assert set(found) == {"version", "digest"}
    assert found is framework_provenance()


def test_driver() -> None:
    """A driver's provenance has its name, runtime and version, and what it does and does not enforce."""
    info = DriverInfo("oci", "crun", "1.8", {"kernel": "6"}, enforced=("network", "seccomp"), weaker=("memory",))
    assert driver_provenance(info) == {
        "name": "oci",
        "runtime": "crun",
        "version": "1.8",
        "enforced": ["network", "seccomp"],
        "weaker": ["memory"],
    }


def test_json_digest_does_not_depend_on_order() -> None:
    """The order of an object's keys does not change its digest, but the type of a value does."""
    assert json_digest({"a": 1, "b": [2]}) == json_digest({"b": [2], "a": 1})
    assert json_digest({"a": 1}) != json_digest({"a": "1"})
