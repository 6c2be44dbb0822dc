"""Labels that name the process that owns a container, and the check whether a container is abandoned."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from securebench.sandboxes.owner import Owner

if TYPE_CHECKING:
    from collections.abc import Mapping

RUN_LABEL = "securebench.run"
DRIVER_LABEL = "securebench.driver"
OWNER_LABEL = "securebench.owner"
"""On everything that a driver creates: ``boot-id/pid-namespace/pid/start-time`` of the owning process."""

FORGOTTEN_SECONDS = 3600
"""If this process cannot tell whether the owner is running, a container is kept while it runs, and this long after its
creation."""


def is_abandoned(container: Mapping[str, Any], now: float | None = None) -> bool:
    """Whether ``container``, an entry of the engine's list, belongs to a SecureBench process that is gone."""
    owner = Owner.parse((container.get("Labels") or {}).get(OWNER_LABEL, ""))
    if owner is None:
        return False
    if owner.can_be_judged():
        return not owner.is_alive()
    age = (time.time() if now is None else now) - container.get("Created", 0)
    return container.get("State") != "running" and age > FORGOTTEN_SECONDS
