"""How a test command is started."""

from __future__ import annotations

from typing import Final

_SHELL: Final = "/bin/sh"


def started(command: str | tuple[str, ...]) -> tuple[str, ...]:
    """Return the argv of ``command``: a text is a shell's; an array is found on PATH by that shell, and not changed."""
    if isinstance(command, str):
        return (_SHELL, "-c", command)
    return (_SHELL, "-c", 'exec "$@"', "sh", *command)
