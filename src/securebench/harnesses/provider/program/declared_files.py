"""The files that a declaration puts into the home of its program."""

from __future__ import annotations

import weakref
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Final

from securebench.agents.declaration import fill
from securebench.sandboxes.base import Mount

if TYPE_CHECKING:
    from collections.abc import Mapping

FILES_TARGET: Final = "/opt/securebench/files"
"""Where the files are mounted in the sandbox, read-only."""


class DeclaredFiles:
    """The declared files of a run. The image's shell copies them into each new home, where the program may change them.

    The host's copies are removed with this object.
    """

    command: Final = ("/bin/sh", "-c", f'cp -R {FILES_TARGET}/. "$HOME" && exec "$@"', "sh")
    """The beginning of the command line: it copies the files, and then runs the program."""

    def __init__(self, templates: Mapping[str, str], values: dict[str, str]) -> None:
        root = Path(mkdtemp(prefix="securebench-files-")).resolve()
        weakref.finalize(self, rmtree, root, ignore_errors=True)
        root.chmod(0o755)
        for name, template in templates.items():
            path = root / name
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            path.write_text(fill(template, values), encoding="utf-8")
            path.chmod(0o644)
        self.mounts = (Mount(root, FILES_TARGET),)
