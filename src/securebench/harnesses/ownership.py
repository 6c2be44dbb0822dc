"""Take back ownership of a workspace that a container's root user has written to.

With some drivers (``DriverInfo.foreign_files``), such as Docker, the container's root may be a different host user from
the one who runs SecureBench. Files of the container's root then have another owner, and they may carry set-id bits.
A sandbox with only the workspace mounted runs ``chown`` on them, which also clears those bits.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from securebench.errors import StorageError
from securebench.fs.safe_open import TreeRefusedError
from securebench.fs.walk import STATUS, TreeLimits, walk
from securebench.sandboxes.base import ROOT_USER, Command, Mount, SandboxSpec
from securebench.tasks import WORKSPACE_TARGET

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.harnesses.base import ProduceContext
    from securebench.images.model import ResolvedImage
    from securebench.workspaces.bounded import WritableDirectory

_CHOWN: Final = (
    f"chown -hR --reference={WORKSPACE_TARGET} {WORKSPACE_TARGET} || "
    f'exec chown -hR "$(stat -c %u:%g {WORKSPACE_TARGET})" {WORKSPACE_TARGET}'
)
"""Gives all files in the workspace to its owner.

Busybox lacks ``chown --reference``. ``stat`` is only the second choice, because Debian 12's gVisor breaks it.
"""
_CHOWN_SECONDS: Final = 120.0
_MAX_ENTRIES: Final = 10_000


def chown_workspace(context: ProduceContext, directory: WritableDirectory, image: ResolvedImage) -> None:
    """Give all files in the workspace to the owner of the workspace, if any file may belong to another user.

    The agent's sandbox must be gone. Raises :class:`StorageError` (``workspace-stuck``) if ``chown`` fails and
    SecureBench does not run as root. Also raises :class:`InfrastructureError`.
    """
    workspace = directory.source.resolve()
    if not _is_foreign(directory.files):
        return
    spec = SandboxSpec(
        image=image,
        limits=context.limits,
        mounts=(Mount(workspace, WORKSPACE_TARGET, read_only=False, bounded=directory.bounded),),
        user=ROOT_USER,
        cap_add=("CHOWN", "DAC_OVERRIDE"),
        labels=context.labels,
    )
    with context.driver.create(spec) as sandbox:
        result = sandbox.run(Command(argv=("/bin/sh", "-c", _CHOWN), timeout_seconds=_CHOWN_SECONDS))
    if result.exit_code and os.geteuid():
        raise StorageError(
            f"cannot change the owner of the files in {workspace}: chown exited with status {result.exit_code}",
            code="workspace-stuck",
            hint="remove the directory as root, then run again with --resume",
        )


def _is_foreign(workspace: Path) -> bool:
    """Return whether ``workspace`` has files of another user. Also true if the tree is too large or cannot be read."""
    owner = workspace.stat().st_uid
    try:
        entries = walk(workspace, TreeLimits(entries=_MAX_ENTRIES), STATUS)
        return any(entry.status.st_uid != owner for entry in entries)
    except (OSError, TreeRefusedError):
        return True
