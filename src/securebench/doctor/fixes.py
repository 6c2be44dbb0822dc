"""Commands that fix a problem, for this user and machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from securebench.doctor.model import Machine


def install(machine: Machine, *packages: str) -> str:
    """Return the command that installs Debian's ``packages``, or advice for other systems."""
    names = " ".join(packages)
    if machine.has("apt-get"):
        return as_root(machine, f"apt-get install {names}")
    return f"install {names} with this system's package manager"


def as_root(machine: Machine, command: str) -> str:
    """Return ``command``, with sudo unless this user is root."""
    return command if machine.is_root else f"sudo {command}"
