"""The command harness: the agent is a command of the tester's."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Final

from securebench.errors import ConfigError, PathPolicyError
from securebench.harnesses.pipeline import AgentHarness, Invocation
from securebench.pack_paths import relative_path_fault
from securebench.sandboxes.base import Mount
from securebench.workspaces.path_policy import require_task_file

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.tasks import AgentView
    from securebench.tester_config import CommandConfig

AGENT_TARGET: Final = "/opt/securebench/agent"
"""Where ``harness.config.agent_dir`` is found in the sandbox, read-only."""


_READ_BY_OTHERS = stat.S_IROTH | stat.S_IXOTH


class CommandHarnessProducer(AgentHarness):
    """Runs ``config.command`` in the workspace. Its answer is its stdout, or the file ``config.artifact_path``.

    Raises :class:`ConfigError`: ``egress-unavailable``, ``agent-dir-missing``, ``agent-dir-unreadable``,
    ``path-unsafe``.
    """

    name = "command"

    def __init__(self, config: CommandConfig) -> None:
        if config.allowed_domains:
            raise ConfigError(
                "harness.config.allowed_domains: this release runs agents without any network",
                code="egress-unavailable",
                hint="leave allowed_domains out; access to single domains comes with a later release",
            )
        if config.artifact_path is not None and (fault := relative_path_fault(config.artifact_path)):
            raise PathPolicyError(f"harness.config.artifact_path: {config.artifact_path!r} {fault}")
        require_task_file(config.task_file)
        self._config = config
        self._mounts = (Mount(_agent_directory(config.agent_dir), AGENT_TARGET),) if config.agent_dir else ()

    def invocation(self, view: AgentView) -> Invocation:
        """Return the command; the shorter of the tester's and the task's time limits holds."""
        config, task_limit = self._config, view.environment.timeout_seconds
        return Invocation(
            argv=config.command,
            timeout_seconds=config.timeout_seconds if task_limit is None else min(config.timeout_seconds, task_limit),
            artifact_path=config.artifact_path,
            task_file=config.task_file,
            mounts=self._mounts,
        )


def _agent_directory(path: Path) -> Path:
    if not path.is_dir():
        raise ConfigError(
            f"harness.config.agent_dir: {path} is not a directory",
            code="agent-dir-missing",
            hint="give a directory beside the tester YAML; the path is relative to it",
        )
    if os.getuid() == 0 and path.stat().st_mode & _READ_BY_OTHERS != _READ_BY_OTHERS:
        raise ConfigError(
            f"harness.config.agent_dir: {path} is closed to the sandbox's user: root runs agents as nobody",
            code="agent-dir-unreadable",
            hint=f"open it: chmod -R a+rX {path}",
        )
    return path.resolve()
