"""The egress of one task inside the gateway process: its listeners, connections and report."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeAlias

from securebench.egress.exit_reason import write_reason
from securebench.egress.port_names import PROXY, RELAY
from securebench.egress.proxy.decisions import Decision, Ledger, ProxyAttempt, Reason
from securebench.egress.proxy.server import Proxy
from securebench.egress.relay.server import ProviderRelay

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Coroutine, Mapping

    from securebench.egress.model import EgressPlan, EgressReport
    from securebench.egress.rules import Caps, ProxyRules
    from securebench.resources import JsonValue
    from securebench.trials import TrialId

_CLOSE_SECONDS: Final = 5.0
_WAITING: Final = 128
"""The backlog of a listener."""

Serve: TypeAlias = "Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[None, None, None]]"


class ServedSession:
    """The proxy and the relay of one task. Both belong to one event loop. ``post`` receives each log line."""

    def __init__(
        self,
        trial: TrialId,
        plan: EgressPlan,
        settings: tuple[ProxyRules, Caps],
        post: Callable[[dict[str, JsonValue]], None],
    ) -> None:
        rules, self._caps = settings
        self._ledger = Ledger(trial, post, self._caps)
        self._relay = ProviderRelay(plan.relay, self._log_relay) if plan.relay else None
        self._ports: dict[str, Serve] = {PROXY: Proxy(plan.domains, self._ledger, rules).serve}
        if self._relay:
            self._ports[RELAY] = self._relay.serve
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self, forwarded_port: str, listener: socket.socket) -> None:
        """Take ownership of ``listener``, and serve ``forwarded_port`` on it. Raises ``OSError``."""
        serve = self._ports[forwarded_port]

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if len(self._tasks) < self._caps.connections:
                self._start(serve(reader, writer))
            else:
                self._ledger.decide(ProxyAttempt(forwarded_port), Decision.DENIED, Reason.TOO_MANY_CONNECTIONS)
                writer.transport.abort()

        self._servers.append(await asyncio.start_server(connected, sock=listener, backlog=_WAITING))

    async def close(self) -> EgressReport:
        """Close all connections and return the report. Takes at most about ten seconds."""
        for server in self._servers:
            server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CLOSE_SECONDS)
        if self._relay:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._relay.close(), _CLOSE_SECONDS)
        return self._ledger.report(self._relay.report() if self._relay else None)

    def _start(self, served: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(served)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            # An internal error: one connection is lost, and the process's standard error has the reason.
            write_reason(error)

    def _log_relay(self, line: Mapping[str, JsonValue]) -> None:
        self._ledger.log({"kind": RELAY, **line})
