"""This user's home directory, which may be unknown or inaccessible."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def home_directory(environ: Mapping[str, str] | None = None) -> Path:
    """Return this user's home. Without one, as in many containers, return a directory that does not exist."""
    named = (os.environ if environ is None else environ).get("HOME", "")
    if Path(named).is_absolute():
        return Path(named)
    try:
        return Path.home()
    except RuntimeError:  # HOME is not set, and /etc/passwd has no entry for this user
        return Path("/nonexistent")


def in_closed_home(path: Path) -> bool:
    """Return whether ``path`` is below a home directory that this user cannot enter.

    ``sudo -u USER`` without ``-H`` leaves ``HOME`` at ``/root``, which most distributions close to other users. Such a
    path is an accident, and contains no files of this user.
    """
    home = home_directory()
    if not path.is_relative_to(home):
        return False
    try:
        os.stat(f"{home}/.")  # noqa: PTH116 - a Path drops the dot, which is what asks for the right to enter
    except PermissionError:
        return True
    except OSError:  # it does not exist, for example: then nothing is below it
        return False
    return False
