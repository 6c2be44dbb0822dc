"""The registry builds the harness that a configuration names, and refuses tasks that no agent can be run on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from harnesses.conftest import VIEW, WORKSPACE_VIEW, with_assets
from securebench.errors import ConfigError, PathPolicyError
from securebench.harnesses.command import CommandHarnessProducer
from securebench.harnesses.provider.harness import ProviderHarness
from securebench.harnesses.registry import build_harness_producer, require_supported
from securebench.resources import FileReference
from securebench.tasks import CandidateKind, Environment
from securebench.tester_config import CommandConfig, HarnessConfig, ProviderSettings

if TYPE_CHECKING:
    from pathlib import Path

PATCH_VIEW = replace(VIEW, task_id="pack/patch", family="repo_patch", candidate_kind=CandidateKind.PATCH)


def test_command_is_built() -> None:
    """A configuration of type command gives the command harness."""
    harness = build_harness_producer(HarnessConfig("command", (), CommandConfig(command=("agent",))))
    assert isinstance(harness, CommandHarnessProducer)
    assert harness.name == "command"


@pytest.mark.parametrize("name", ["codex", "claude_code"])
def test_agent_programs_are_built(name: str) -> None:
    """A configuration of an agent program gives its harness, under the name that the configuration has."""
    harness = build_harness_producer(HarnessConfig(name, (), ProviderSettings(model="m")))
    assert type(harness) is ProviderHarness
    assert harness.name == name


def test_tasks_that_can_run_pass() -> None:
    """Text tasks, repositories and terminal tasks are accepted, filled from their images or not."""
    from_image = Environment(workdir="/app", materialize_workdir_from_image=True)
    require_supported([VIEW, PATCH_VIEW, WORKSPACE_VIEW, replace(WORKSPACE_VIEW, environment=from_image)])


def test_every_problem_is_named_at_once(tmp_path: Path) -> None:
    """K14: a pack is refused with all of its tasks that cannot run, before any of them does."""
    files = (FileReference("a", "x"), FileReference("b", "X"))
    views = [with_assets(replace(VIEW, task_id=name), tmp_path, *files) for name in ("pack/first", "pack/second")]
    with pytest.raises(ConfigError) as refused:
        require_supported([views[0], VIEW, views[1]])
    assert [problem.code for problem in refused.value.problems] == ["path-unsafe", "path-unsafe"]
    assert all(name in str(refused.value) for name in ("pack/first", "pack/second"))


def test_the_testers_task_file_counts(tmp_path: Path) -> None:
    """K14: an asset may not lie where the tester wants the task file."""
    view = with_assets(VIEW, tmp_path, FileReference("a", "given.json"))
    require_supported([view])
    with pytest.raises(ConfigError) as refused:
        require_supported([view], task_file="given.json")
    assert refused.value.problems[0].code == PathPolicyError.default_code
