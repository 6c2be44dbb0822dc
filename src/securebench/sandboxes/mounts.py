"""Rules for mounts of sandboxes. They are the same for all drivers."""

from __future__ import annotations

import stat
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from securebench.errors import MaterializationError
from securebench.sandboxes.base import MIB, Mount

if TYPE_CHECKING:
    from securebench.sandboxes.base import SandboxSpec

SHM_SIZE = 64 * MIB
"""The size of ``/dev/shm`` in bytes, which counts as memory."""

NAME_FILES = tuple(Path(__file__).resolve().parent / "etc" / name for name in ("hosts", "resolv.conf"))
"""The files that a sandbox without a network has in ``/etc``."""

KERNEL_TREES = ("/proc", "/sys", "/dev")


def binds(spec: SandboxSpec) -> list[Mount]:
    """Return the mounts of ``spec`` and, without a network, the files for name resolution.

    With these files, ``localhost`` resolves, and no other name is looked up. Raises :class:`MaterializationError`
    (``mount-unsafe``).
    """
    for mount in spec.mounts:
        check_mount(mount)
    taken = {mount.target for mount in spec.mounts}
    files = [Mount(file, f"/etc/{file.name}") for file in NAME_FILES]
    return [*spec.mounts, *(file for file in files if spec.network == "none" and file.target not in taken)]


def empty_volumes(spec: SandboxSpec) -> list[str]:
    """Return the image's volumes that get an empty tmpfs: under a read-only root, without another mount there."""
    taken = {mount.target for mount in binds(spec)} | set(spec.tmpfs)
    return [path for path in spec.image.volumes if spec.read_only and path not in taken]


def check_mount(mount: Mount) -> None:
    """Raise :class:`MaterializationError` (``mount-unsafe``) unless ``mount`` exposes exactly its source.

    The source must be a regular file or directory without a symbolic link in its path, because engines follow links on
    the host. Call this right before creating the sandbox, for directories that no other user can write.
    """
    _check_source(mount)
    target = PurePosixPath(mount.target)
    plain = str(target) == mount.target and target.is_absolute() and ".." not in target.parts
    if not plain or target.name == "" or any(target.is_relative_to(tree) for tree in KERNEL_TREES):
        raise _unsafe(mount, f"has the target {mount.target!r}, where nothing may be mounted")


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
        raise _unsafe(mount, f"cannot be inspected: {error.strerror}") from error


def _unsafe(mount: Mount, why: str) -> MaterializationError:
    return MaterializationError(
        f"the mount of {mount.source} {why}",
        code="mount-unsafe",
        hint="mount a regular file or directory by its real path (Path.resolve()) at a plain absolute path",
    )
