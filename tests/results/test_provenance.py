"""Where a verdict comes from."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from securebench.errors import ConfigError
from securebench.harnesses.command import CommandHarnessProducer
from securebench.results.provenance import (
    driver_provenance,
    framework_provenance,
    harness_provenance,
    json_digest,
    tree_digest,
)
from securebench.sandboxes.base import DriverInfo
from securebench.tester_config import CommandConfig, HarnessConfig

if TYPE_CHECKING:
    from collections.abc import Callable


PRODUCER = CommandHarnessProducer(CommandConfig(command=("agent",)))


@pytest.fixture
def agent(tmp_path: Path) -> Path:
    """Give an agent's directory."""
    root = tmp_path / "agent"
    (root / "lib").mkdir(parents=True)
    (root / "agent.py").write_text("print('hello')\n")
    (root / "lib" / "tool.py").write_text("")
    (root / "link").symlink_to("agent.py")
    return root


def command(agent_dir: Path | None = None) -> HarnessConfig:
    """Return the configuration of a command harness."""
    return HarnessConfig("command", ("KEY",), CommandConfig(command=("agent",), agent_dir=agent_dir))


def relink(path: Path, target: str) -> None:
    """Put a link where something else was."""
    path.unlink()
    path.symlink_to(target)


CHANGES: dict[str, Callable[[Path], object]] = {
    "content": lambda root: (root / "agent.py").write_text("print('other')\n"),
    "name": lambda root: (root / "agent.py").rename(root / "other.py"),
    "a new file": lambda root: (root / "new").write_text(""),
    "a new directory": lambda root: (root / "new").mkdir(),
    "a file gone": lambda root: (root / "lib" / "tool.py").unlink(),
    "executable": lambda root: (root / "agent.py").chmod(0o755),
    "the target of a link": lambda root: relink(root / "link", "lib/tool.py"),
    "a link instead of a file": lambda root: relink(root / "agent.py", "lib/tool.py"),
    "a file moved": lambda root: (root / "lib" / "tool.py").rename(root / "tool.py"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_changed_tree_has_another_digest(agent: Path, change: Callable[[Path], object]) -> None:
    """Whatever an agent could notice changes the digest of its directory (L05, F16)."""
    before = tree_digest(agent)
    change(agent)
    assert tree_digest(agent) != before


def test_the_same_tree_has_the_same_digest(agent: Path, tmp_path: Path) -> None:
    """Neither times nor the place count."""
    before = tree_digest(agent)
    os.utime(agent / "agent.py", (1, 1))
    assert tree_digest(agent.rename(tmp_path / "moved")) == before


def test_links_are_not_followed(agent: Path, tmp_path: Path) -> None:
    """What a link leads to is not read: it may be anything, and a loop has no end."""
    (agent / "loop").symlink_to(".")
    outside = tmp_path / "outside"
    outside.write_text("one")
    (agent / "out").symlink_to(outside)
    before = tree_digest(agent)
    outside.write_text("two")
    assert tree_digest(agent) == before


def test_odd_names(agent: Path) -> None:
    """A name that is not UTF-8 has a digest too."""
    before = tree_digest(agent)
    Path(os.fsdecode(os.fsencode(agent) + b"/\xff\n")).write_text("")
    assert tree_digest(agent) != before


def test_what_is_no_file_is_refused(agent: Path) -> None:
    """A pipe would block whoever reads it."""
    os.mkfifo(agent / "pipe")
    with pytest.raises(ConfigError) as caught:
        tree_digest(agent)
    assert caught.value.code == "agent-dir-unreadable"


def test_a_missing_directory_is_refused(tmp_path: Path) -> None:
    """An agent's directory that is not there is an error that names it."""
    with pytest.raises(ConfigError, match="missing"):
        tree_digest(tmp_path / "missing")


def test_harness(agent: Path) -> None:
    """The digest of a harness covers settings, names of variables and the agent's files, but not where they are."""
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


def test_framework() -> None:
    """The framework is named by its version and by the digest of its sources (M17)."""
    found = framework_provenance()
    assert set(found) == {"version", "digest"}
    assert found is framework_provenance()


def test_driver() -> None:
    """A record says which driver ran it, what was beneath, what that held a sandbox to and what not."""
    info = DriverInfo("oci", "crun", "1.8", {"kernel": "6"}, enforced=("network", "seccomp"), weaker=("memory",))
    assert driver_provenance(info) == {
        "name": "oci",
        "runtime": "crun",
        "version": "1.8",
        "enforced": ["network", "seccomp"],
        "weaker": ["memory"],
    }


def test_json_digest_does_not_depend_on_order() -> None:
    """Two objects with the same fields have the same digest."""
    assert json_digest({"a": 1, "b": [2]}) == json_digest({"b": [2], "a": 1})
    assert json_digest({"a": 1}) != json_digest({"a": "1"})
