"""What a container has left of one directory, from the engine, when nothing of it lives."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from securebench.sandboxes.collected import CollectedArchive, DirectoryReplacedError

if TYPE_CHECKING:
    from securebench.sandboxes.docker.container import DockerContainer

_DIRECTORY: Final = 1 << 31
"""The bit of a directory in the modes that the engine gives, which are Go's. A link does not have it."""


def left_directory(container: DockerContainer, path: str) -> CollectedArchive:
    """Return what is left of ``path``. Raises as :meth:`Sandbox.collected` does.

    The engine follows links that lead to it, within the container: so each component is looked at before. Nothing lives
    there that could change one meanwhile.
    """
    wanted = PurePosixPath(path)
    for directory in (*reversed(wanted.parents[:-1]), wanted):
        mode = container.mode(str(directory))
        if mode is None or not mode & _DIRECTORY:
            raise DirectoryReplacedError(path)
    return CollectedArchive(container.archive(path))
