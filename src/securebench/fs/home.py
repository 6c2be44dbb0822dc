"""This user's home directory, which may be unknown or inaccessible, and SecureBench's data and settings directories."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_DATA_OF_ROOT: Final = Path("/var/lib/securebench")


def home_directory(environ: Mapping[str, str] | None = None) -> Path:
    """Return this user's home. Without one, as in many containers, return a directory that does not exist."""
    named = (os.environ if environ is None else environ).get("HOME", "")
    if Path(named).is_absolute():
        return Path(named)
    try:
        return Path.home()
    except RuntimeError:  # HOME is not set, and /etc/passwd has no entry for this user
        return Path("/nonexistent")


def data_directory(name: str, variable: str, environ: Mapping[str, str] | None = None) -> Path:
    """Return SecureBench's data directory ``name``: the value of ``variable`` if set, or the default for this user."""
    environ = os.environ if environ is None else environ
    if named := environ.get(variable):
        return Path(named).absolute()
    if os.geteuid() == 0:
        return _DATA_OF_ROOT / name
    data = Path(environ.get("XDG_DATA_HOME", ""))
    return (data if data.is_absolute() else home_directory(environ) / ".local/share") / "securebench" / name


def settings_directory(environ: Mapping[str, str] | None = None) -> Path:
    """Return the directory of this user's own settings, which may not exist."""
    environ = os.environ if environ is None else environ
    settings = Path(environ.get("XDG_CONFIG_HOME", ""))
    return (settings if settings.is_absolute() else home_directory(environ) / ".config") / "securebench"


def in_closed_home(path: Path) -> bool:
    """Return whether ``path`` is in this user's home directory and this user cannot enter that directory.

    ``sudo -u USER`` without ``-H`` leaves ``HOME`` at ``/root``, which most distributions close to other users. Such a
    home is set by accident and contains no files of this user.
    """
    home = home_directory()
    if not path.is_relative_to(home):
        return False
    try:
        os.stat(f"{home}/.")  # noqa: PTH116 - a Path drops the dot that makes the kernel check the right to enter
    except PermissionError:
        return True
    except OSError:  # for example, it does not exist, and so contains nothing
        return False
    return False
