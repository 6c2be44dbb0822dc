"""Attacks as a shell command: a program that makes attempts, and writes one line of JSON for each attempt.

The lines are ``{"attempt": …, "outcome": …, "how": …}``. The expected outcome is ``denied``; ``allowed`` is an escape.
Attempts whose names begin with ``control`` must be ``allowed``: they check that the attack itself works. The outcome
``done`` does not show whether an attempt succeeded: check the requests that the provider received, the
file ``loot`` of :func:`attack` and, for forged events, the agent's outcome.
"""

from __future__ import annotations

import inspect
from typing import Final

from securebench.testing.provider.inside import base, direct, forging, looting, main, proxying, relaying
from securebench.testing.provider.inside.base import ALLOWED, DENIED, DONE, UNKNOWN, Targets
from securebench.testing.provider.steps import Shell

__all__ = ["ALLOWED", "DENIED", "DONE", "KINDS", "LINES", "LOOT", "UNKNOWN", "Targets", "attack"]

KINDS: Final = ("direct", "proxy", "relay", "keys", "events", "budget")
"""The kinds of attacks: around the proxy, through the proxy, through the relay, on keys, on events, on the budget."""

LINES: Final = "attempts.jsonl"
LOOT: Final = "loot.bin"

_MODULES: Final = (base, direct, proxying, relaying, looting, forging, main)
"""The modules of the program, in the order in which they are executed: each after those that it imports."""

_PROGRAM: Final = """\
import sys
for name, source in {sources!r}:
    module = sys.modules[name] = type(sys)(name)
    exec(compile(source, name, "exec", dont_inherit=True), module.__dict__)
module.main({kinds!r}, {targets!r}, {lines!r}, {loot!r}, {most!r})
"""


def attack(
    *kinds: str, targets: Targets | None = None, lines: str = LINES, loot: str = LOOT, most: int = 1000
) -> Shell:
    """Return the command that makes the attempts of ``kinds``, or by default of all kinds except ``budget``.

    The command writes a line for each attempt to the file ``lines``. Attacks on keys write what they find to the file
    ``loot``. Both files are below the working directory. The attack on the budget requests up to ``most`` answers, and
    stops at the first refusal. The sandbox's image needs ``python3`` 3.9 or later. The command takes some seconds.
    Outside of an agent's sandbox it makes no attempts: see ``inside.main``. Raises ``ValueError`` for an unknown kind.
    """
    if unknown := set(kinds) - set(KINDS):
        raise ValueError(f"unknown kind of attack: {', '.join(sorted(unknown))}")
    program = _PROGRAM.format(
        sources=[(module.__name__, inspect.getsource(module)) for module in _MODULES],
        kinds=kinds or KINDS[:-1],
        targets=(targets or Targets())._asdict(),
        lines=lines,
        loot=loot,
        most=most,
    )
    return Shell(f"python3 -I -B - <<'END_OF_ATTACK'\n{program}END_OF_ATTACK\nwc -l {lines}")
