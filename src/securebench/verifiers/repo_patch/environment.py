"""The environment of a test command: fixed, with a few harmless variables of the image."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from securebench.pack_paths import is_at_or_below
from securebench.sandboxes.base import BASE_ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Mapping

HARMLESS: Final = (
    "TZ",
    "CONDA_PREFIX",
    "CONDA_DEFAULT_ENV",
    "VIRTUAL_ENV",
    "JAVA_HOME",
    "GOROOT",
    "GOPATH",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "DOTNET_ROOT",
)
"""The variables that a test command gets from the image, unless their value is a path that a candidate may write to.

All other variables except ``PATH`` are left out. ``LD_*``, ``PYTHON*``, ``PYTEST_*``, ``BASH_ENV``, ``NODE_OPTIONS``,
``GIT_*`` and similar variables can change a verdict, and no list of them is complete.
"""

_WRITABLE: Final = ("/tmp", "/var/tmp", "/dev/shm", "/workspace")  # noqa: S108 - in the sandbox


def check_environment(image: Mapping[str, str], repository: str) -> dict[str, str]:
    """Return the environment of a command that tests the code at ``repository``.

    The image's ``PATH`` is kept without directories that the candidate may have changed: relative paths, paths with
    ``..``, and everything at or below the repository or a world-writable directory. If no entry is left, a default
    ``PATH`` is used.
    """
    kept = {name: image[name] for name in HARMLESS if name in image and not _is_candidates(image[name], repository)}
    entries = [entry for entry in image.get("PATH", "").split(":") if _is_trusted(entry, repository)]
    path = ":".join(entries) or BASE_ENVIRONMENT["PATH"]
    return {**BASE_ENVIRONMENT, **kept, "PATH": path}


def _is_trusted(entry: str, repository: str) -> bool:
    return entry.startswith("/") and ".." not in entry.split("/") and not _is_candidates(entry, repository)


def _is_candidates(path: str, repository: str) -> bool:
    return any(is_at_or_below(path, tree) for tree in (repository, *_WRITABLE))
