"""Dangerous commands that a row needs in its verifier's sandbox, and the tester's policy for them."""

from __future__ import annotations

import pytest

from securebench.dangerous_commands import DANGEROUS_COMMANDS, VerificationPolicy

OPEN = VerificationPolicy(disallow_dangerous_commands=False)


@pytest.mark.parametrize(
    ("policy", "needed", "denied"),
    [
        (VerificationPolicy(), ["chroot"], ("chroot",)),
        (OPEN, ["chroot"], ()),
        (OPEN, [], ()),
        (VerificationPolicy(disallow_dangerous_commands=False, deny_commands=("chroot",)), ["chroot"], ("chroot",)),
        (OPEN, ["mount", "chroot"], ("mount",)),
    ],
)
def test_what_is_denied(policy: VerificationPolicy, needed: list[str], denied: tuple[str, ...]) -> None:
    """By default, every command is denied.

    If the tester allows dangerous commands, those in ``deny_commands`` and unknown ones are still denied.
    """
    assert policy.denied(needed) == denied


def test_an_allowed_command_brings_its_capability() -> None:
    """``chroot``, the only dangerous command, adds the capability SYS_CHROOT. An empty list adds none."""
    assert OPEN.capabilities(["chroot"]) == ("SYS_CHROOT",)
    assert OPEN.capabilities([]) == ()
    assert set(DANGEROUS_COMMANDS) == {"chroot"}


def test_a_denied_command_brings_nothing() -> None:
    """Asking for the capability of a denied command raises a ``PermissionError``."""
    with pytest.raises(PermissionError, match="chroot"):
        VerificationPolicy().capabilities(["chroot"])
