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
    """Raise :class:`ConfigError` (``collect-unsupported``) unless what ``spec`` asks to collect is the image's alone.

    Nothing is mounted above or below it: what lies on a mount is not the image's, and not in its layer. Who asks for
    all, ``/``, as the building of images does, leaves out what is mounted.
    """
    if spec.collect is None:
        return
    path = PurePosixPath(spec.collect)
    if str(path) != spec.collect or not path.is_absolute() or ".." in path.parts:
        raise _unsupported(spec.collect, "it is not a plain absolute path below the root")
    if persistent or spec.read_only:
        raise _unsupported(spec.collect, "only an ephemeral sandbox with a writable root keeps what was changed")
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
        raise _unsupported(path, f"it is not a directory of the image ({error.strerror})") from None
    finally:
        os.close(descriptor)


def nothing_to_collect() -> InfrastructureError:
    """Return the error for a caller that collects too early, or from a sandbox that collects nothing."""
    return InfrastructureError("nothing was collected: no command of a sandbox that collects has ended")


def one_command_only() -> InfrastructureError:
    """Return the error for a second command, because its changes could not be told from those of the first."""
    return InfrastructureError("a sandbox that collects runs one command")


def _unsupported(path: str, why: str) -> ConfigError:
    return ConfigError(
        f"what is changed in {path} cannot be collected: {why}",
        code="collect-unsupported",
        hint="name a directory of the image's own, such as that of its repository, and mount nothing in it",
    )
