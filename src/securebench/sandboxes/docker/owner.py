"""Whose container it is: labels that name the owning process, and the judgement that nobody owns it any more."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from securebench.sandboxes.owner import Owner

if TYPE_CHECKING:
    from collections.abc import Mapping

RUN_LABEL = "securebench.run"
DRIVER_LABEL = "securebench.driver"
OWNER_LABEL = "securebench.owner"
"""On everything that a driver makes: ``boot-id/pid-namespace/pid/start-time`` of the owning process."""

FORGOTTEN_SECONDS = 3600
"""A container whose owner cannot be judged from here is left alone while it runs, and this long after its making."""


def is_abandoned(container: Mapping[str, Any], now: float | None = None) -> bool:
    """Whether ``container``, an entry of the engine's list, is ours and nobody's any more."""
    owner = Owner.parse((container.get("Labels") or {}).get(OWNER_LABEL, ""))
    if owner is None:
        return False
    if owner.can_be_judged():
        return not owner.is_alive()
    age = (time.time() if now is None else now) - container.get("Created", 0)
    return container.get("State") != "running" and age > FORGOTTEN_SECONDS
