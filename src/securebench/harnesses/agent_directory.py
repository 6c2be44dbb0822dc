"""The tester's directory for an agent, which is mounted read-only in the agent's sandbox."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Final

from securebench.errors import ConfigError
from securebench.sandboxes.base import Mount

if TYPE_CHECKING:
    from pathlib import Path

AGENT_TARGET: Final = "/opt/securebench/agent"
"""Where ``harness.config.agent_dir`` is mounted in the sandbox, read-only."""

_READ_BY_OTHERS: Final = stat.S_IROTH | stat.S_IXOTH


def agent_mounts(path: Path | None) -> tuple[Mount, ...]:
    """Return the mount of the agent's directory ``path``; an empty tuple if ``path`` is ``None``.

    Raises :class:`ConfigError` (``agent-dir-missing``, ``agent-dir-unreadable``).
    """
    if path is None:
        return ()
    if not path.is_dir():
        raise ConfigError(
            f"harness.config.agent_dir: {path} is not a directory",
            code="agent-dir-missing",
            hint="use the path of a directory, relative to the tester YAML",
        )
    if os.getuid() == 0 and path.stat().st_mode & _READ_BY_OTHERS != _READ_BY_OTHERS:
        raise ConfigError(
            f"harness.config.agent_dir: the sandbox user cannot read {path}: when root runs SecureBench, "
            "agents run as nobody",
            code="agent-dir-unreadable",
            hint=f"make it readable: chmod -R a+rX {path}",
        )
    return (Mount(path.resolve(), AGENT_TARGET),)
