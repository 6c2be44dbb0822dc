"""Rules for collecting changes. They are the same for all drivers."""

from __future__ import annotations

import os
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from securebench.errors import ConfigError, InfrastructureError
from securebench.fs.safe_open import OPEN_DIRECTORY
from securebench.sandboxes.mounts import KERNEL_TREES, binds

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.sandboxes.base import SandboxSpec


def check_collect(spec: SandboxSpec, *, persistent: bool) -> None:
    """Raise :class:`ConfigError` (``collect-unsupported``) unless the directory to collect belongs to the image alone.

    Nothing may be mounted at, above or below it, because files on a mount are not in the container's layer. Collecting
    ``/``, as image builds do, is allowed and leaves mounts out.
    """
    if spec.collect is None:
        return
    path = PurePosixPath(spec.collect)
    if str(path) != spec.collect or not path.is_absolute() or ".." in path.parts:
        raise _unsupported(spec.collect, "it is not a plain absolute path below the root")
    if persistent or spec.read_only:
        raise _unsupported(spec.collect, "only an ephemeral sandbox with a writable root keeps its changes")
    if not path.name:
        return
    mounted = (*KERNEL_TREES, *spec.tmpfs, *(mount.target for mount in binds(spec)))
    if near := [at for at in mounted if path.is_relative_to(at) or PurePosixPath(at).is_relative_to(path)]:
        raise _unsupported(spec.collect, f"{near[0]} is mounted there")


def require_directory(tree: Path, path: str) -> None:
    """Raise :class:`ConfigError` (``collect-unsupported``) unless ``path`` is a directory of the image ``tree``.

    No component may be a link, because changes behind a link are in another directory and would be missed.
    """
    descriptor = os.open(tree, OPEN_DIRECTORY)
    try:
        for part in PurePosixPath(path).parts[1:]:
            below = os.open(part, OPEN_DIRECTORY, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
    except OSError as error:
        raise _unsupported(path, f"it is not a directory in the image ({error.strerror})") from None
    finally:
        os.close(descriptor)


def nothing_to_collect() -> InfrastructureError:
    """Return the error for a caller that collects too early, or from a sandbox that collects nothing."""
    return InfrastructureError("nothing to collect: no command of a sandbox that collects changes has exited")


def one_command_only() -> InfrastructureError:
    """Return the error for a second command: its changes could not be distinguished from those of the first."""
    return InfrastructureError("a sandbox that collects changes runs only one command")


def _unsupported(path: str, why: str) -> ConfigError:
    return ConfigError(
        f"cannot collect changes in {path}: {why}",
        code="collect-unsupported",
        hint="use a directory of the image, such as its repository, in which nothing is mounted",
    )
