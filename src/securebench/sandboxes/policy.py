"""A sandbox that applies a policy to commands, by the names of their executables.

The sandbox records each command and rejects forbidden ones. It does not confine commands, because a name says little
about a program, which may be a copy, a link or an interpreter. The driver confines all programs: it drops capabilities,
filters system calls and blocks new privileges.
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
"""Programs that accept a script as one string. The policy cannot check the commands in such a script."""


class CommandDeniedError(CandidateError):
    """A policy rejected a command. It counts as a failure of the candidate, never of infrastructure."""

    default_code = "command-denied"

    def __init__(self, message: str) -> None:
        super().__init__(FailureReason.DANGEROUS_COMMAND_DENIED, message, phase=FailurePhase.POLICY)


@dataclass(frozen=True, slots=True)
class CommandPolicy:
    """Which executables may run, by base name.

    Deny takes precedence over allow. A non-empty ``allow`` permits only its names, and ``*`` in ``deny`` denies all.
    If either is not empty, a shell that is passed a script string is rejected unless ``allow`` contains the shell.
    """

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    def refusal(self, argv: tuple[str, ...]) -> str | None:
        """Return why ``argv`` is forbidden, or ``None`` if it is allowed."""
        if not (self.allow or self.deny):
            return None
        if not argv or not (name := executable_name(argv[0])):
            return "it does not name an executable"
        if EVERYTHING in self.deny or name in self.deny:
            return f"{name!r} is denied"
        if self.allow and name not in self.allow:
            return f"{name!r} is not an allowed command"
        if is_shell_string(argv) and name not in self.allow:
            return f"{name!r} would run a script string, whose commands the policy cannot check"
        return None


@dataclass(frozen=True, slots=True)
class CommandAttempt:
    """A requested command. ``refusal`` is why the policy rejected it, or ``None`` if it was allowed."""

    argv: tuple[str, ...]
    executable: str
    refusal: str | None


class PolicySandbox(WrappedSandbox):
    """Runs in ``sandbox`` the commands that ``policy`` allows, and records all requested commands in ``attempts``."""

    def __init__(self, sandbox: Sandbox, policy: CommandPolicy) -> None:
        super().__init__(sandbox)
        self._policy = policy
        self._attempts: list[CommandAttempt] = []
        self._lock = threading.Lock()

    @property
    def attempts(self) -> tuple[CommandAttempt, ...]:
        """Return the commands requested so far."""
        with self._lock:
            return tuple(self._attempts)

    def open(self, command: Command) -> SandboxProcess:
        """Start ``command``. Raises :class:`CommandDeniedError` (``command-denied``) if the policy rejects it."""
        refusal = self._policy.refusal(command.argv)
        name = executable_name(command.argv[0]) if command.argv else ""
        with self._lock:
            self._attempts.append(CommandAttempt(command.argv, name, refusal))
        if refusal is not None:
            raise CommandDeniedError(f"the command policy rejected a command: {refusal}")
        return super().open(command)


def executable_name(path: str) -> str:
    """Return the base name of the normalized path: ``/bin/../sbin/chroot/.`` is ``chroot``."""
    return posixpath.basename(posixpath.normpath(path)) if path else ""


def is_shell_string(argv: tuple[str, ...]) -> bool:
    """Whether ``argv`` may pass a script string to a shell, as ``sh -c 'text'`` and ``bash -ec 'text'`` do.

    Every argument that begins with a single dash and contains a ``c`` counts as the option ``-c``, even if it comes
    after the name of a script.
    """
    if executable_name(argv[0]) not in SHELLS:
        return False
    options = [argument for argument in argv[1:] if argument.startswith("-") and not argument.startswith("--")]
    return any("c" in option for option in options)
