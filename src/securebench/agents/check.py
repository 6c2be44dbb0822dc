"""Ask a program for its version, in a sandbox and never on the host."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from securebench.agents.catalogue import find
from securebench.errors import ConfigError
from securebench.printable import printable_name

if TYPE_CHECKING:
    from securebench.agents.model import AgentProgram
    from securebench.sandboxes.base import CommandResult

VERSION_SECONDS: Final = 60.0
"""A generous time limit. On an idle machine it takes less than a second."""
_MAX_LENGTH: Final = 200


def version_command(program: AgentProgram, mount_target: str) -> tuple[str, ...]:
    """Return the argv that prints the version of a program whose directory is mounted at ``mount_target``."""
    return (f"{mount_target}/{program.executable}", "--version")


def parse_version(name: str, stdout: bytes | str) -> str:
    """Return the version that a program printed, or an empty string if the output has another format.

    Raises :class:`ConfigError` (``agent-unknown``).
    """
    text = os.fsdecode(stdout[:_MAX_LENGTH]).strip()
    found = find(name).version_line.fullmatch(text)
    return found[1] if found else ""


def require_version(program: AgentProgram, result: CommandResult, image: str = "the image") -> None:
    """Raise :class:`ConfigError` (``agent-unfit``) unless a program printed its version in a sandbox."""
    if result.exit_code == 0 and parse_version(program.name, result.stdout) == program.version:
        return
    output = printable_name(b" ".join((result.stderr or result.stdout).split()))
    ended = "it timed out" if result.timed_out else f"exit {result.exit_code}"
    raise ConfigError(
        f"{program.name} does not start in {image}, or is not version {program.version}: {ended}, {output!r}",
        code="agent-unfit",
        hint="the program printed this message; install a missing or outdated library in the image",
    )
