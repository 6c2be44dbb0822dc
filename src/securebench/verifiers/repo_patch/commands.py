"""Build the argv of a test command."""

from __future__ import annotations

from typing import Final

_SHELL: Final = "/bin/sh"


def started(command: str | tuple[str, ...]) -> tuple[str, ...]:
    """Return the argv of ``command``. A shell runs a string; it finds an array's program on PATH."""
    if isinstance(command, str):
        return (_SHELL, "-c", command)
    return (_SHELL, "-c", 'exec "$@"', "sh", *command)
