"""The attack program: makes the attempts of the requested kinds, and writes a line for each."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any

from securebench.testing.provider.inside.base import EgressAttempt, Targets, make
from securebench.testing.provider.inside.direct import attempts as direct
from securebench.testing.provider.inside.forging import attempts as forging
from securebench.testing.provider.inside.looting import attempts as looting
from securebench.testing.provider.inside.proxying import attempts as proxying
from securebench.testing.provider.inside.relaying import attempts as relaying
from securebench.testing.provider.inside.relaying import spend

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MARK = "SECUREBENCH_TASK_FILE"
"""An environment variable that every agent has.

Without this variable, nothing is attacked, because the program may be running on a developer's machine.
"""


def main(kinds: Iterable[str], targets: dict[str, Any], lines: str, loot: str, most: int) -> None:
    """Make the attempts. ``targets`` are fields of :class:`Targets`.

    A line for each attempt is written to the file ``lines``. What the attacks on keys find is written to the file
    ``loot``. The attack on the budget asks for ``most`` answers.
    """
    if MARK not in os.environ:
        raise SystemExit(f"{MARK} is not set: not an agent's sandbox, so nothing is attempted")
    parsed = Targets(**targets)
    make([attempt for kind in kinds for attempt in _of_kind(kind, parsed, loot, most)], lines)


def _of_kind(kind: str, targets: Targets, loot: str, most: int) -> Iterator[EgressAttempt]:
    if kind == "direct":
        yield from direct(targets)
    elif kind == "proxy":
        yield from proxying(targets)
    elif kind == "relay":
        yield from relaying(targets)
    elif kind == "keys":
        yield from looting(loot)
    elif kind == "events":
        yield from forging()
    elif kind == "budget":
        yield EgressAttempt(f"{most} answers in a row", partial(spend, targets, most))
