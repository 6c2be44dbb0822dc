"""The egress gateway: a process outside all sandboxes that serves their forwarded ports."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final, Self

from securebench.egress.connection import GatewayConnection
from securebench.egress.port_names import PROXY, RELAY
from securebench.egress.rules import Caps, ProxyRules
from securebench.errors import EgressError
from securebench.sandboxes.base import ForwardedPort
from securebench.trials import TrialId

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping

    from securebench.egress.model import EgressPlan, EgressReport, ProbeReport, RelayPlan
    from securebench.resources import JsonValue

PROXY_PORT: Final = 3128
"""The port of the proxy on a sandbox's loopback interface."""

RELAY_PORT: Final = 8788
"""The port of the provider relay on a sandbox's loopback interface."""

_PROXY_URL: Final = f"http://127.0.0.1:{PROXY_PORT}"
_HERE: Final = "127.0.0.1,localhost"
_PROXY_VARIABLES: Final = {
    **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), _PROXY_URL),
    **dict.fromkeys(("NO_PROXY", "no_proxy"), _HERE),
}


class EgressSession:
    """The egress of one task. A context manager.

    Pass ``forwarded_ports`` to the spec of the task's sandbox, and ``environment`` (the proxy variables, if there is a
    proxy) to its environment. ``relay_url`` is the URL at which programs in the sandbox reach the relay, without a
    trailing slash. It is empty if there is no relay.
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
        """Call ``call`` when the gateway exits while this session is open, or at once if it has already exited.

        If the gateway exits later, ``call`` runs in another thread. It does not run if :meth:`Gateway.close` stops the
        gateway.
        """
        self._connection.on_death(self._number, call)

    def close(self) -> EgressReport:
        """Close the session and all its connections, and return its report. Idempotent.

        Raises :class:`EgressError` (``egress-failed``) if the gateway has exited, failed or sent an invalid report, or
        if a log line of the session could not be written.
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
    """A gateway of a run. Its process is started when it is needed, and again if it has exited. Thread safe.

    A run may have two gateways: one for its agents and one for its judge model.

    ``log`` receives each decision as it is made, up to a limit for each session. A decision is a flat JSON object, and
    becomes one line of ``egress.jsonl``. ``log`` may be called from any thread. ``rules`` are for tests: see
    :class:`ProxyRules`.
    """

    def __init__(
        self,
        log: Callable[[Mapping[str, JsonValue]], None],
        *,
        rules: ProxyRules | None = None,
        caps: Caps | None = None,
    ) -> None:
        self._log = log
        self._rules = rules or ProxyRules()
        self._caps = caps or Caps()
        self._lock = threading.Lock()
        self._numbers = count(1)
        self._connection: GatewayConnection | None = None
        self._closed = False

    def open(self, trial: TrialId, plan: EgressPlan) -> EgressSession:
        """Open an egress session for one trial of a task. Raises :class:`EgressError`."""
        connection = self._live_connection()
        number = next(self._numbers)
        connection.open(number, trial, plan, self._log)
        return EgressSession(connection, number, plan)

    def probe(self, trial: TrialId | None, plan: RelayPlan, model: str) -> ProbeReport:
        """Request one short answer of ``model`` from the provider of ``plan``, and return the result.

        The request does not come from an agent. Its log line names the ``trial``; ``None`` stands for the run itself.
        Waits at most 30 seconds for the provider. If the gateway has to be started first, this takes additional time.
        Raises :class:`EgressError`.
        """
        connection, started = self._live_connection(), time.monotonic()
        report = connection.probe(next(self._numbers), plan, model)
        self._log(
            {
                "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
                **(trial or TrialId("", 0))._asdict(),
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
        """Stop the process and all its sessions. Idempotent."""
        with self._lock:
            self._closed = True
            if self._connection:
                self._connection.close()

    def _live_connection(self) -> GatewayConnection:
        with self._lock:
            if self._closed:
                raise EgressError("the egress gateway is already closed")
            if self._connection is None or self._connection.is_dead:
                self._connection = GatewayConnection(self._rules, self._caps)
            return self._connection
