"""Fake programs: small shell scripts in the only directory of the PATH."""

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
    """A directory of programs, and the file ``calls``, to which scripts append their names and arguments."""

    directory: Path
    calls: Path

    def add(self, name: str, script: str = "exit 0", *, recorded: bool = True) -> None:
        """Add a shell script as a program. If ``recorded``, it first appends its name and arguments to ``calls``."""
        record = f'printf "%s\\n" "{name} $*" >>"{self.calls}"\n' if recorded else ""
        path = self.directory / name
        path.write_text(f"#!/bin/sh\n{record}{script}\n")
        path.chmod(0o755)

    def borrow(self, *names: str) -> None:
        """Link programs of the real machine into the directory."""
        for name in names:
            real = shutil.which(name, path=os.defpath)
            assert real, f"{name} is not on this machine"
            (self.directory / name).symlink_to(real)

    def called(self) -> list[str]:
        """Return the recorded calls, one line for each."""
        return self.calls.read_text().splitlines() if self.calls.exists() else []


def only_these_programs(directory: Path, monkeypatch: pytest.MonkeyPatch) -> FakePrograms:
    """Create an empty directory for programs, and make it the only directory of the PATH."""
    programs = directory / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    return FakePrograms(programs, directory / "calls")
