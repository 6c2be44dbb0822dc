"""Taking a workspace back that the root of a container has written in.

Where a driver says so (``DriverInfo.foreign_files``), that root is another user of the host than the one who runs
SecureBench, as on Docker: what it left belongs to that user, and may carry set-id bits. A sandbox that sees nothing but
the workspace gives it all to whom the workspace belongs, which takes those bits away.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from securebench.errors import StorageError
from securebench.fs.safe_open import TreeRefusedError
from securebench.fs.walk import STATUS, TreeLimits, walk
from securebench.harnesses.place import ROOT
from securebench.sandboxes.base import Command, Mount, SandboxSpec
from securebench.tasks import WORKSPACE_TARGET

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.harnesses.base import ProduceContext
    from securebench.images.model import ResolvedImage

_GIVE: Final = (
    f"chown -hR --reference={WORKSPACE_TARGET} {WORKSPACE_TARGET} || "
    f'exec chown -hR "$(stat -c %u:%g {WORKSPACE_TARGET})" {WORKSPACE_TARGET}'
)
"""The first is GNU's alone; under Debian 12's gVisor its ``stat`` knows no owner. The second is what busybox has."""
_SECONDS: Final = 120.0
_LOOKED_AT: Final = 10_000


def chown_workspace(context: ProduceContext, image: ResolvedImage) -> None:
    """Give what lies in the workspace to its owner, where something of it is somebody else's.

    Nothing of the agent's sandbox lives any more. Raises :class:`StorageError` (``workspace-stuck``) if that cannot be
    done and matters, and :class:`InfrastructureError`.
    """
    workspace = context.workspace.resolve()
    if not _is_foreign(workspace):
        return
    spec = SandboxSpec(
        image=image,
        limits=context.limits,
        mounts=(Mount(workspace, WORKSPACE_TARGET, read_only=False),),
        user=ROOT,
        cap_add=("CHOWN", "DAC_OVERRIDE"),
        labels=context.labels,
    )
    with context.driver.create(spec) as sandbox:
        result = sandbox.run(Command(argv=("/bin/sh", "-c", _GIVE), timeout_seconds=_SECONDS))
    if result.exit_code and os.geteuid():
        raise StorageError(
            f"what the agent left in {workspace} cannot be taken back: chown ended with {result.exit_code}",
            code="workspace-stuck",
            hint="remove it as root, then run again with --resume",
        )


def _is_foreign(workspace: Path) -> bool:
    """Return whether anything in it may belong to another user. What cannot be read, or is too much, counts as such."""
    owner = workspace.stat().st_uid
    try:
        entries = walk(workspace, TreeLimits(entries=_LOOKED_AT), STATUS)
        return any(entry.status.st_uid != owner for entry in entries)
    except (OSError, TreeRefusedError):
        return True
