"""Test commands: their words, and how each is started."""

from __future__ import annotations

import re
import shlex
from typing import Final

_SHELL: Final = "/bin/sh"
_PLAIN = re.compile(r"""[\w@%+=:,./\[\] '"-]+""", re.ASCII)


def started(command: str | tuple[str, ...]) -> tuple[str, ...]:
    """Return the argv of ``command``: a text is a shell's; an array is found on PATH by that shell, and not changed."""
    if isinstance(command, str):
        return (_SHELL, "-c", command)
    return (_SHELL, "-c", 'exec "$@"', "sh", *command)


def words(command: str | tuple[str, ...]) -> list[str]:
    """Return the words of ``command``; none of a text in which a shell would do more than split words."""
    if not isinstance(command, str):
        return list(command)
    if not _PLAIN.fullmatch(command):
        return []
    try:
        found = shlex.split(command)
    except ValueError:
        return []
    return [] if found and "=" in found[0] else found
