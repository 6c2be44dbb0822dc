"""Pass arguments and variables into a sandbox exactly, or reject them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from securebench.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from securebench.sandboxes.base import SandboxSpec

HOSTNAME: Final = "sandbox"
"""The host name of every sandbox."""

OOM_SCORE: Final = 500
"""The ``oom_score_adj`` of a sandbox: without free memory, the kernel kills a sandbox before this process.

Raising it needs no privilege. A process in a sandbox can lower it to the value of this process, but not further.
"""

IDLE_COMMAND: Final = ("/bin/cat",)
"""The main process of a persistent sandbox. It waits for stdin to close, also when the host process is killed."""


def exact_argv(argv: Iterable[str]) -> list[str]:
    """Return ``argv`` as a list. Raises :class:`ConfigError` (``command-not-text``) if it cannot be passed on."""
    return [_exact(argument) for argument in argv]


def exact_environment(environment: Mapping[str, str]) -> list[str]:
    """Return sorted ``NAME=value`` entries. Raises :class:`ConfigError` (``command-not-text``)."""
    for name in environment:
        if not name or "=" in name:
            raise ConfigError(f"{name!r} cannot be the name of a variable", code="command-not-text")
    return [_exact(f"{name}={environment[name]}") for name in sorted(environment)]


def process_environment(spec: SandboxSpec, of_command: Mapping[str, str]) -> dict[str, str]:
    """Return all variables of a process of ``spec``.

    ``HOME`` is always included, because container runtimes add it from the image's user list if it is missing.
    """
    inherited = spec.image.environment if spec.inherit_image_environment else {}
    return {"HOME": "/", **inherited, **spec.environment, **of_command}


def _exact(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{text!r} is not valid text, so it cannot be passed on", code="command-not-text") from None
    if "\0" in text:
        raise ConfigError(f"{text!r} contains a NUL byte, so it cannot be passed on", code="command-not-text")
    return text
