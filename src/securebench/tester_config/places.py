"""Checks on the host directories that a run writes to or exposes to an agent."""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from securebench.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable


_NO_DIRECTORY: Final = "is not a directory"

OUTPUT_DIR_HINT: Final = "use a separate directory for the run, such as '../runs/first'"


def require_output_dir(path: Path, pack_directory: Path) -> None:
    """Raise :class:`ConfigError` if ``path`` cannot be the output directory.

    It must not be ``/`` or a home directory, and must be outside the pack's directory (``output-dir-unsafe``). If it
    exists, it must be a directory (``output-dir-unusable``). Symlinks are resolved first.
    """
    if fault := output_dir_fault(path, pack_directory):
        raise ConfigError(f"the output directory {path} {fault}", code=output_dir_code(fault), hint=OUTPUT_DIR_HINT)


def output_dir_code(fault: str) -> str:
    """Return the error code for a result of :func:`output_dir_fault`."""
    return "output-dir-unusable" if fault == _NO_DIRECTORY else "output-dir-unsafe"


def output_dir_fault(path: Path, pack_directory: Path) -> str:
    """Return why a run may not write to ``path``, or an empty string."""
    place, pack = _resolved(path), _resolved(pack_directory)
    if place == Path(place.anchor):
        return "is the root of the file system"
    if place in _home_directories():
        return "is a home directory"
    if place.is_relative_to(pack):
        return "is the pack's directory or inside it"
    return _NO_DIRECTORY if _kind(place) not in (0, stat.S_IFDIR) else ""


def agent_dir_fault(path: Path, secret: Iterable[Path]) -> str:
    """Return why ``path`` may not be exposed to an agent, or an empty string.

    The directory must not contain any of the paths in ``secret``.
    """
    if _kind(path) != stat.S_IFDIR:
        return "is a symbolic link" if _kind(path) == stat.S_IFLNK else _NO_DIRECTORY
    place = _resolved(path)
    if place == Path(place.anchor) or place in _home_directories():
        return "is a home directory or the root of the file system"
    inside = contained(path, secret)
    return f"contains {inside.name!r}, which the agent must not see" if inside else ""


def contained(directory: Path, files: Iterable[Path]) -> Path | None:
    """Return the first of ``files`` that is in ``directory``, after resolving symlinks; ``None`` if none is."""
    place = _resolved(directory)
    return next((file for file in files if _resolved(file).is_relative_to(place)), None)


def _resolved(path: Path) -> Path:
    """Return ``path`` with symlinks resolved, as far as it exists."""
    return Path(os.path.realpath(path))  # unlike Path.resolve, this does not raise on a symlink loop


def _kind(path: Path) -> int:
    """Return the file type bits of ``path`` itself, without following symlinks; 0 if it cannot be read."""
    try:
        return stat.S_IFMT(os.lstat(path).st_mode)
    except OSError:
        return 0


def _home_directories() -> set[Path]:
    homes = [entry.pw_dir for entry in pwd.getpwall()] + [os.environ.get("HOME", "")]
    return {_resolved(Path(home)) for home in homes if home}
