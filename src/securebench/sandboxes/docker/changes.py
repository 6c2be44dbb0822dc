"""Read a directory of a stopped container through the engine."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from securebench.sandboxes.collected import CollectedArchive, DirectoryReplacedError

if TYPE_CHECKING:
    from securebench.sandboxes.docker.container import DockerContainer

_DIRECTORY: Final = 1 << 31
"""The directory bit in the file modes that the engine returns, which are Go's. A link does not have it."""


def left_directory(container: DockerContainer, path: str) -> CollectedArchive:
    """Return the directory ``path``. Raises the errors of :meth:`Sandbox.collected`.

    The engine follows links in the path, within the container, so each component is checked first. No process of the
    container is running any more, so nothing can change a component meanwhile.
    """
    target = PurePosixPath(path)
    for directory in (*reversed(target.parents[:-1]), target):
        mode = container.mode(str(directory))
        if mode is None or not mode & _DIRECTORY:
            raise DirectoryReplacedError(path)
    return CollectedArchive(container.archive(path))
