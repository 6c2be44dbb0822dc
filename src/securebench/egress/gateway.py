"""The gateway: the process outside all sandboxes that their forwarded ports lead to. One a run."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final, Self

from securebench.egress.codec import plan_to_json, relay_to_json, settings_to_json
from securebench.egress.connection import GatewayConnection
from securebench.egress.port_names import PROXY, RELAY
from securebench.egress.rules import Caps, ProxyRules
from securebench.errors import EgressError
from securebench.sandboxes.forwarding import ForwardedPort

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping

    from securebench.egress.model import EgressPlan, EgressReport, ProbeReport, RelayPlan
    from securebench.resources import JsonValue

PROXY_PORT: Final = 3128
"""Where a sandbox finds its proxy, on its own loopback."""

RELAY_PORT: Final = 8788
"""Where a sandbox finds its provider, on its own loopback."""

_PROXY_URL: Final = f"http://127.0.0.1:{PROXY_PORT}"
_HERE: Final = "127.0.0.1,localhost"
_PROXY_VARIABLES: Final = {
    **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), _PROXY_URL),
    **dict.fromkeys(("NO_PROXY", "no_proxy"), _HERE),
}


class EgressSession:
    """One task's way out. A context manager.

    ``forwarded_ports`` belong into the spec of its sandbox, ``environment`` into its environment: the variables of the
    proxy,
    if there is one. ``relay_url`` is where its provider is found from inside, with no slash at its end, or empty.
    """

    forwarded_ports: tuple[ForwardedPort, ...]
    environment: Mapping[str, str]
    relay_url: str

    def __init__(self, connection: GatewayConnection, number: int, plan: EgressPlan) -> None:
        self._connection = connection
        self._number = number
        self._lock = threading.Lock()
        self._outcome: EgressReport | EgressError | None = None
        ports = {PROXY: PROXY_PORT} if plan.domains else {}
        ports |= {RELAY: RELAY_PORT} if plan.relay else {}
        self.forwarded_ports = tuple(
            ForwardedPort(port, partial(self._serve, forwarded_port)) for forwarded_port, port in ports.items()
        )
        self.environment = _PROXY_VARIABLES if plan.domains else {}
        self.relay_url = f"http://127.0.0.1:{RELAY_PORT}" if plan.relay else ""

    def on_death(self, call: Callable[[], None]) -> None:
        """Call it, from another thread, if the gateway dies while this session is open; at once if it has."""
        self._connection.on_death(self._number, call)

    def close(self) -> EgressReport:
        """End it, with all its connections, and return what became of it all. Idempotent.

        Raises :class:`EgressError` (``egress-failed``) if the gateway died meanwhile.
        """
        with self._lock:
            if self._outcome is None:
                try:
                    self._outcome = self._connection.finish(self._number)
                except EgressError as error:
                    self._outcome = error
        if isinstance(self._outcome, EgressError):
            raise self._outcome
        return self._outcome

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            self.close()
        except EgressError:
            if kind is None:
                raise

    def _serve(self, forwarded_port: str, listener: socket.socket) -> None:
        self._connection.listen(self._number, forwarded_port, listener)


class Gateway:
    """The gateway of a run. Its process starts with the first session, and anew after a death. Thread safe.

    ``log`` is given each decision as it is made: a flat JSON object, for a line of ``egress.jsonl``. It may be
    called from any thread. ``rules`` are for tests: see :class:`ProxyRules`.
    """

    def __init__(
        self,
        log: Callable[[Mapping[str, JsonValue]], None],
        *,
        rules: ProxyRules | None = None,
        caps: Caps | None = None,
    ) -> None:
        self._log = log
        self._settings = settings_to_json(rules or ProxyRules(), caps or Caps())
        self._lock = threading.Lock()
        self._numbers = count(1)
        self._connection: GatewayConnection | None = None
        self._closed = False

    def open(self, task_id: str, plan: EgressPlan) -> EgressSession:
        """Open a way out for a task. Raises :class:`EgressError`."""
        connection = self._live_connection()
        number = next(self._numbers)
        connection.open(number, {"task_id": task_id, "plan": plan_to_json(plan)}, self._log)
        return EgressSession(connection, number, plan)

    def probe(self, task_id: str, plan: RelayPlan, model: str) -> ProbeReport:
        """Ask the provider of ``plan`` for one short answer of ``model``, and return what came of it.

        No agent takes part in it. ``task_id`` is whose log line it becomes, empty for the run's own. Takes half a
        minute at most. Raises :class:`EgressError`.
        """
        connection, started = self._live_connection(), time.monotonic()
        report = connection.probe(next(self._numbers), {"plan": relay_to_json(plan), "model": model})
        self._log(
            {
                "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
                "task_id": task_id,
                "kind": "probe",
                "decision": "allowed" if report.status else "failed",
                "reason": report.trouble.value if report.trouble else "",
                "provider_status": report.status,
                "seconds": round(time.monotonic() - started, 3),
                "tokens": report.input_tokens + report.output_tokens,
            }
        )
        return report

    def close(self) -> None:
        """End the process and whatever it serves. Idempotent."""
        with self._lock:
            self._closed = True
            if self._connection:
                self._connection.close()

    def _live_connection(self) -> GatewayConnection:
        with self._lock:
            if self._closed:
                raise EgressError("the gateway is closed")
            if self._connection is None or self._connection.is_dead:
                self._connection = GatewayConnection(self._settings)
            return self._connection
