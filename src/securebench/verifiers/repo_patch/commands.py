"""Build the argv of a test command."""

from __future__ import annotations

from typing import Final

_SHELL: Final = "/bin/sh"


def started(command: str | tuple[str, ...]) -> tuple[str, ...]:
    """Return the argv that runs ``command`` with a shell.

    A string is a shell command. For an array, the shell only looks up the program on PATH and executes it.
    """
    if isinstance(command, str):
        return (_SHELL, "-c", command)
    return (_SHELL, "-c", 'exec "$@"', "sh", *command)
