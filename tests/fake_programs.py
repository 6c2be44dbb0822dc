"""Programs of a machine, faked: small shell scripts in a directory that is the whole PATH."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


@dataclass(frozen=True, slots=True)
class FakePrograms:
    """A directory of programs. ``calls`` is where each script may write down that it was run, and how."""

    directory: Path
    calls: Path

    def add(self, name: str, script: str = "exit 0", *, recorded: bool = True) -> None:
        """Add a program: a shell script, which first writes its name and arguments to ``calls``."""
        record = f'printf "%s\\n" "{name} $*" >>"{self.calls}"\n' if recorded else ""
        path = self.directory / name
        path.write_text(f"#!/bin/sh\n{record}{script}\n")
        path.chmod(0o755)

    def borrow(self, *names: str) -> None:
        """Make programs of the real machine reachable, too."""
        for name in names:
            real = shutil.which(name, path=os.defpath)
            assert real, f"{name} is not on this machine"
            (self.directory / name).symlink_to(real)

    def called(self) -> list[str]:
        """Return what was run: a line a call."""
        return self.calls.read_text().splitlines() if self.calls.exists() else []


def only_these_programs(directory: Path, monkeypatch: pytest.MonkeyPatch) -> FakePrograms:
    """Make an empty directory the whole PATH, and return it to be filled."""
    programs = directory / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    return FakePrograms(programs, directory / "calls")
