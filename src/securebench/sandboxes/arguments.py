"""Arguments and variables on their way into a sandbox: handed over exactly, or refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from securebench.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from securebench.sandboxes.base import SandboxSpec

HOSTNAME: Final = "sandbox"
"""What every sandbox is called."""

OOM_SCORE: Final = 500
"""The ``oom_score_adj`` of a sandbox: where the machine runs out of memory, one of them is killed before this process.

Nobody needs a right to raise it. What runs in a sandbox can lower it to that of this process again, never below.
"""

IDLE_COMMAND: Final = ("/bin/cat",)
"""What a persistent sandbox runs: it waits on its stdin, which ends when the host's process does, even if killed."""


def exact_argv(argv: Iterable[str]) -> list[str]:
    """Return ``argv`` as a list. Raises :class:`ConfigError` (``command-not-text``) for what cannot arrive as it is."""
    return [_exact(argument) for argument in argv]


def exact_environment(environment: Mapping[str, str]) -> list[str]:
    """Return sorted ``NAME=value`` entries. Raises :class:`ConfigError` (``command-not-text``)."""
    for name in environment:
        if not name or "=" in name:
            raise ConfigError(f"{name!r} cannot be the name of a variable", code="command-not-text")
    return [_exact(f"{name}={environment[name]}") for name in sorted(environment)]


def process_environment(spec: SandboxSpec, of_command: Mapping[str, str]) -> dict[str, str]:
    """Return every variable that a process of ``spec`` has.

    ``HOME`` is always among them: container runtimes add it from the image's user list where it is missing.
    """
    inherited = spec.image.environment if spec.inherit_image_environment else {}
    return {"HOME": "/", **inherited, **spec.environment, **of_command}


def _exact(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{text!r} is not valid text, so it cannot be passed on", code="command-not-text") from None
    if "\0" in text:
        raise ConfigError(f"{text!r} holds a NUL byte, which no argument can", code="command-not-text")
    return text
