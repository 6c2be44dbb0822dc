"""What may be mounted into a sandbox, and where: the same for every driver."""

from __future__ import annotations

import stat
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from securebench.errors import MaterializationError

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.sandboxes.base import Mount

_KERNEL_TREES = ("/proc", "/sys", "/dev")


def check_mount(mount: Mount) -> None:
    """Raise :class:`MaterializationError` (``mount-unsafe``) unless ``mount`` shows what it names and nothing else.

    The source is a regular file or directory, reached through no symbolic link: engines follow a link on the host. To
    be asked right before the sandbox is made, and of directories that nobody else writes meanwhile.
    """
    _check_source(mount)
    target = PurePosixPath(mount.target)
    plain = str(target) == mount.target and target.is_absolute() and ".." not in target.parts
    if not plain or target.name == "" or any(target.is_relative_to(tree) for tree in _KERNEL_TREES):
        raise _unsafe(mount, f"goes to {mount.target!r}, where nothing may be mounted")


def _check_source(mount: Mount) -> None:
    source = mount.source
    if not source.is_absolute() or ".." in source.parts:
        raise _unsafe(mount, "is not an absolute path without '..'")
    for path in (*reversed(source.parents), source):
        mode = _mode(mount, path)
        if stat.S_ISLNK(mode):
            raise _unsafe(mount, f"passes through the symbolic link {path}")
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise _unsafe(mount, "is neither a regular file nor a directory")


def _mode(mount: Mount, path: Path) -> int:
    try:
        return path.lstat().st_mode
    except OSError as error:
        raise _unsafe(mount, f"cannot be looked at: {error.strerror}") from error


def _unsafe(mount: Mount, why: str) -> MaterializationError:
    return MaterializationError(
        f"the mount of {mount.source} {why}",
        code="mount-unsafe",
        hint="mount a regular file or directory by its real path (Path.resolve()) at a plain absolute path",
    )
