"""Dangerous commands: those a row may request for its verifier's sandbox, and those the tester allows."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

DANGEROUS_COMMANDS: Mapping[str, str] = MappingProxyType({"chroot": "SYS_CHROOT"})
"""Each known dangerous command, and the Linux capability that it needs."""


@dataclass(frozen=True, slots=True)
class VerificationPolicy:
    """The tester's ``verification`` section. ``deny_commands`` are denied even if dangerous commands are allowed."""

    disallow_dangerous_commands: bool = True
    deny_commands: tuple[str, ...] = ()

    def denied(self, needed: Iterable[str]) -> tuple[str, ...]:
        """Return the denied commands among ``needed``, in the given order. An unknown name is always denied."""
        return tuple(
            name
            for name in needed
            if name not in DANGEROUS_COMMANDS or self.disallow_dangerous_commands or name in self.deny_commands
        )

    def capabilities(self, needed: Iterable[str]) -> tuple[str, ...]:
        """Return the capabilities for the commands ``needed``. Raises ``PermissionError`` if a command is denied."""
        wanted = tuple(needed)
        if refused := self.denied(wanted):
            raise PermissionError(f"denied by the tester's policy: {', '.join(refused)}")
        return tuple(sorted({DANGEROUS_COMMANDS[name] for name in wanted}))
