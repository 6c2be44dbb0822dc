"""The relay: what a sandbox has in place of a provider's address and key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from securebench.network.model import RelayReport
from securebench.network.upstream import Upstream

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from securebench.network.model import RelayPlan
    from securebench.resources import JsonValue


class Relay:
    """One task's way to its provider. It belongs to one event loop.

    ``log`` is given a line a request: counts and names, never a body, never a key.
    """

    def __init__(
        self, plan: RelayPlan, log: Callable[[dict[str, JsonValue]], None], *, upstream: Upstream | None = None
    ) -> None:
        self._plan = plan
        self._log = log
        self._upstream = upstream or Upstream(plan.base_url, plan.authority)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection of the agent's, and close it. Raises nothing but cancellation."""
        raise AssertionError

    def report(self) -> RelayReport:
        """Return what was seen so far."""
        return RelayReport()

    async def close(self) -> None:
        """Close whatever is open to the provider. Idempotent."""
