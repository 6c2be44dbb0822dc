"""The registry builds the configured harness, and refuses tasks whose files cannot be placed in a workspace."""

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
    """The command harness is built for a configuration of the type ``command``."""
    harness = build_harness_producer(HarnessConfig("command", (), CommandConfig(command=("agent",))))
    assert isinstance(harness, CommandHarnessProducer)
    assert harness.name == "command"


@pytest.mark.parametrize("name", ["codex", "claude_code"])
def test_agent_programs_are_built(name: str) -> None:
    """For the type ``codex`` or ``claude_code``, a provider harness with that name is built."""
    harness = build_harness_producer(HarnessConfig(name, (), ProviderSettings(model="m")))
    assert type(harness) is ProviderHarness
    assert harness.name == name


def test_tasks_that_can_run_pass() -> None:
    """Text, repository and terminal tasks are accepted. A terminal task may fill its workspace from the image."""
    from_image = Environment(workdir="/app", materialize_workdir_from_image=True)
    require_supported([VIEW, PATCH_VIEW, WORKSPACE_VIEW, replace(WORKSPACE_VIEW, environment=from_image)])


def test_every_problem_is_named_at_once(tmp_path: Path) -> None:
    """K14: one error names all tasks with colliding assets, before any task runs."""
    files = (FileReference("a", "x"), FileReference("b", "X"))
    views = [with_assets(replace(VIEW, task_id=name), tmp_path, *files) for name in ("pack/first", "pack/second")]
    with pytest.raises(ConfigError) as refused:
        require_supported([views[0], VIEW, views[1]])
    assert [problem.code for problem in refused.value.problems] == ["path-unsafe", "path-unsafe"]
    assert all(name in str(refused.value) for name in ("pack/first", "pack/second"))


def test_the_testers_task_file_counts(tmp_path: Path) -> None:
    """K14: an asset may not have the path of the task file that the tester chose."""
    view = with_assets(VIEW, tmp_path, FileReference("a", "given.json"))
    require_supported([view])
    with pytest.raises(ConfigError) as refused:
        require_supported([view], task_file="given.json")
    assert refused.value.problems[0].code == PathPolicyError.default_code
