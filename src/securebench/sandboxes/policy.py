"""A sandbox under a policy of commands, by the names of their executables.

This audits: it records what was asked for and refuses what should not be. It confines nothing, for a name says little
of what runs (a copy under another name, a link, an interpreter). What confines is the driver: capabilities, system
call filter, no new privileges.
"""

from __future__ import annotations

import posixpath
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from securebench.errors import CandidateError, FailurePhase, FailureReason
from securebench.sandboxes.wrapping import WrappedSandbox

if TYPE_CHECKING:
    from securebench.sandboxes.base import Command, Sandbox, SandboxProcess

EVERYTHING = "*"

SHELLS = frozenset({"ash", "bash", "busybox", "csh", "dash", "fish", "ksh", "mksh", "sh", "tcsh", "zsh"})
"""What takes a program as one string, in which no name can be judged."""


class CommandDeniedError(CandidateError):
    """A command was refused by a policy. Scored as a failure, like every denial, and never an infrastructure error."""

    default_code = "command-denied"

    def __init__(self, message: str) -> None:
        super().__init__(FailureReason.DANGEROUS_COMMAND_DENIED, message, phase=FailurePhase.POLICY)


@dataclass(frozen=True, slots=True)
class CommandPolicy:
    """Which executables may run, by base name.

    Deny beats allow; a non-empty ``allow`` admits only its names; ``*`` in ``deny`` denies all. Under a policy that
    says anything, a shell that is given a string is refused, unless ``allow`` names that shell.
    """

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    def refusal(self, argv: tuple[str, ...]) -> str | None:
        """Return why ``argv`` may not run, or ``None`` if it may."""
        if not (self.allow or self.deny):
            return None
        if not argv or not (name := executable_name(argv[0])):
            return "it names no executable"
        if EVERYTHING in self.deny or name in self.deny:
            return f"{name!r} is denied"
        if self.allow and name not in self.allow:
            return f"{name!r} is not among the allowed commands"
        if is_shell_string(argv) and name not in self.allow:
            return f"{name!r} is given a shell string, in which no command can be judged"
        return None


@dataclass(frozen=True, slots=True)
class CommandAttempt:
    """A command that was asked for. ``refusal`` is ``None`` if it ran."""

    argv: tuple[str, ...]
    executable: str
    refusal: str | None


class PolicySandbox(WrappedSandbox):
    """Runs in ``sandbox`` what ``policy`` admits, and records every attempt, in order, in ``attempts``."""

    def __init__(self, sandbox: Sandbox, policy: CommandPolicy) -> None:
        super().__init__(sandbox)
        self._policy = policy
        self._attempts: list[CommandAttempt] = []
        self._lock = threading.Lock()

    @property
    def attempts(self) -> tuple[CommandAttempt, ...]:
        """Return what was asked for until now."""
        with self._lock:
            return tuple(self._attempts)

    def open(self, command: Command) -> SandboxProcess:
        """Start ``command``. Raises :class:`CommandDeniedError` (``command-denied``) if the policy refuses it."""
        refusal = self._policy.refusal(command.argv)
        name = executable_name(command.argv[0]) if command.argv else ""
        with self._lock:
            self._attempts.append(CommandAttempt(command.argv, name, refusal))
        if refusal is not None:
            raise CommandDeniedError(f"the command policy refused a command: {refusal}")
        return super().open(command)


def executable_name(path: str) -> str:
    """Return the base name that ``path`` resolves to by its text: ``/bin/../sbin/chroot/.`` is ``chroot``."""
    return posixpath.basename(posixpath.normpath(path)) if path else ""


def is_shell_string(argv: tuple[str, ...]) -> bool:
    """Whether ``argv`` hands a shell a program as a string, as ``sh -c 'text'`` and ``bash -ec 'text'`` do."""
    if executable_name(argv[0]) not in SHELLS:
        return False
    options = [argument for argument in argv[1:] if argument.startswith("-") and not argument.startswith("--")]
    return any("c" in option for option in options)
