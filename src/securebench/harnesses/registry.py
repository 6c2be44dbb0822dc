"""Build the configured harness, and check that an agent can run on the tasks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from securebench import plugins
from securebench.errors import ConfigError
from securebench.harnesses.pipeline import plan_workspace
from securebench.plugins import ExtensionKind
from securebench.workspaces.path_policy import DEFAULT_TASK_FILE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from securebench.errors import Problem
    from securebench.harnesses.base import HarnessProducer
    from securebench.tasks import AgentView
    from securebench.tester_config import HarnessConfig


def build_harness_producer(config: HarnessConfig) -> HarnessProducer:
    """Return the harness that ``config`` names. Raises :class:`ConfigError`."""
    producer: HarnessProducer = plugins.load(ExtensionKind.HARNESS, config.type).from_settings(config.config)
    return producer


def require_supported(views: Iterable[AgentView], task_file: str = DEFAULT_TASK_FILE) -> None:
    """Raise one :class:`ConfigError` with all problems that prevent an agent from running on these tasks.

    ``path-unsafe``: a task's files cannot be written to a workspace.
    """
    problems: list[Problem] = []
    for view in views:
        try:
            plan_workspace(view, task_file)
        except ConfigError as error:
            problems += (replace(found, message=f"task {view.task_id!r}: {found.message}") for found in error.problems)
    if problems:
        raise ConfigError(problems=problems)
