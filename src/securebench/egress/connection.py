"""A run's connection to a gateway: start the process, send it requests, and notice at once when it exits.

The first frame contains the gateway's settings. The gateway answers it with ``ready``. Then the run sends ``open``,
``listen`` (with a listening socket) and ``close`` for each session, and ``probe`` to make the gateway send a test
request to a provider. The gateway answers ``open`` with ``opened``, ``close`` with ``closed`` and a report, and
``probe`` with ``probed`` and a report. If one of these three fails, it answers ``failed``. It does not answer
``listen``. In between, it sends each log line of a session as ``log``. Keys are sent only to the gateway, inside
``open`` and ``probe``. The gateway serves untrusted peers, so what it sends is checked.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import h11

from securebench.egress.codec import (
    plan_to_json,
    probe_from_json,
    relay_to_json,
    report_from_json,
    settings_to_json,
)
from securebench.errors import EgressError, InfrastructureError
from securebench.faults import FaultPoint, reached
from securebench.ipc.child import ChildError, SupervisedChild
from securebench.ipc.frames import FrameError, pack, receive, send

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping, Sequence

    from securebench.egress.model import EgressPlan, EgressReport, ProbeReport, RelayPlan
    from securebench.egress.rules import Caps, ProxyRules
    from securebench.resources import JsonValue
    from securebench.trials import TrialId

_START_SECONDS: Final = 30.0
_ANSWER_SECONDS: Final = 15.0
"""Timeout of an answer. The gateway process needs at most two thirds of this time to close a session."""
_PROBE_SECONDS: Final = 60.0
"""Timeout of a probe. The gateway process gives up on the provider after half of this time."""
_END_SECONDS: Final = 5.0
_H11: Final = str(Path(h11.__file__).resolve().parents[1])
"""The directory that contains h11, the only required dependency of the process."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The gateway's last answer for a session.

    ``kind`` is the kind of the answer, such as ``opened``. ``why`` is the reason for a failure. ``report`` is the
    session's report, if any.
    """

    kind: str = ""
    why: str = ""
    report: object = None


@dataclass(slots=True)
class GatewaySession:
    """What the run stores about one session, such as its callbacks and the gateway's last answer."""

    log: Callable[[Mapping[str, JsonValue]], None]
    answered: threading.Event = field(default_factory=threading.Event)
    answer: Answer = field(default_factory=Answer)
    on_death: list[Callable[[], None]] = field(default_factory=list)
    fault: Exception | None = None
    """The error that prevented a log line from being written."""


class GatewayConnection:
    """The connection to a gateway process. Thread safe. Every wait has a time limit."""

    def __init__(self, rules: ProxyRules, caps: Caps) -> None:
        """Start the process and wait until it is ready. Raises :class:`EgressError`."""
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._sessions: dict[int, GatewaySession] = {}
        self._started = threading.Event()
        self._dead = threading.Event()
        self._closed = False
        self._child: SupervisedChild | None = None
        self._reason = ""
        # The kernel kills the process when the *thread* that started it ends (PR_SET_PDEATHSIG). So it is started by a
        # thread that lives as long as the gateway, and not by the thread of the first task that needs a gateway.
        self._thread = threading.Thread(target=self._run, args=(rules, caps), name="securebench-gateway", daemon=True)
        self._thread.start()
        self._started.wait(2 * _START_SECONDS)
        if self._dead.is_set() or not self._started.is_set():
            self.close()
            raise self.error()

    @property
    def is_dead(self) -> bool:
        """Whether the process has exited."""
        return self._dead.is_set()

    def open(
        self, number: int, trial: TrialId, plan: EgressPlan, log: Callable[[Mapping[str, JsonValue]], None]
    ) -> None:
        """Open a session for ``trial``. Later calls refer to it by ``number``, and ``log`` receives its log lines.

        Raises :class:`EgressError`.
        """
        session = GatewaySession(log)
        with self._lock:
            self._sessions[number] = session
        answer = Answer()
        try:
            request = {"do": "open", "session": number, "trial": list(trial), "plan": plan_to_json(plan)}
            answer = self._ask(session, request, _ANSWER_SECONDS)
        finally:
            if answer.kind != "opened":
                self._forget(number)
        if answer.kind != "opened":
            raise EgressError(f"the egress gateway cannot open a session for this task: {answer.why}")

    def listen(self, number: int, forwarded_port: str, listener: socket.socket) -> None:
        """Have the process serve ``forwarded_port`` of a session on ``listener``. Closes ``listener``. Never raises.

        If the process has exited, :meth:`finish` raises the error.
        """
        with listener, suppress(EgressError):
            self._send({"do": "listen", "session": number, "forwarded_port": forwarded_port}, (listener.fileno(),))

    def finish(self, number: int) -> EgressReport:
        """Close a session and return its report.

        Raises :class:`EgressError` if the gateway fails, or if the egress log of the session could not be written.
        """
        session = self._sessions[number]
        try:
            answer = self._ask(session, {"do": "close", "session": number}, _ANSWER_SECONDS)
            if answer.kind == "failed":
                raise EgressError(f"the egress gateway failed to close the session of this task: {answer.why}")
            report = report_from_json(answer.report)
        except FrameError as error:
            raise EgressError(f"the egress gateway sent an invalid report: {error}") from error
        finally:
            self._forget(number)
        if session.fault:
            raise EgressError(f"cannot write the egress log: {session.fault}") from session.fault
        return report

    def probe(self, number: int, plan: RelayPlan, model: str) -> ProbeReport:
        """Have the process send a test request to a provider, and return the result. Raises :class:`EgressError`."""
        request = {"do": "probe", "session": number, "plan": relay_to_json(plan), "model": model}
        session = GatewaySession(lambda _entry: None)
        with self._lock:
            self._sessions[number] = session
        try:
            answer = self._ask(session, request, _PROBE_SECONDS)
            if answer.kind != "probed":
                raise EgressError(f"the egress gateway cannot send a request to the provider: {answer.why}")
            return probe_from_json(answer.report)
        except FrameError as error:
            raise EgressError(f"the egress gateway sent an invalid report: {error}") from error
        finally:
            self._forget(number)

    def on_death(self, number: int, call: Callable[[], None]) -> None:
        """Call ``call`` if the process exits while the session is open, or immediately if it has already exited.

        If :meth:`close` stops the process later, ``call`` is not called.
        """
        with self._lock:
            session = self._sessions.get(number)
            if session and not self._dead.is_set():
                session.on_death.append(call)
                return
        if session:
            call()

    def close(self) -> None:
        """Stop the process and wait until it has exited. Idempotent."""
        self._closed = True
        if self._child:
            self._child.stop(_END_SECONDS)
        self._thread.join(3 * _END_SECONDS)

    def error(self) -> EgressError:
        """Return the error that says why the process exited."""
        return EgressError(
            f"the egress gateway is no longer running: {self._reason or 'it was closed'}",
            hint="check whether the machine is overloaded or short of memory, or whether something killed the gateway; "
            "then continue with --resume",
        )

    def _ask(self, session: GatewaySession, frame: Mapping[str, object], seconds: float) -> Answer:
        session.answered.clear()
        self._send(frame)
        if not session.answered.wait(seconds):
            self._reason = "it did not answer in time and was killed"
            self._kill()
            session.answered.wait(_ANSWER_SECONDS)
        if self._dead.is_set():
            raise self.error()
        return session.answer

    def _send(self, frame: Mapping[str, object], descriptors: Sequence[int] = ()) -> None:
        try:
            packet = pack(frame)
            reached(FaultPoint.GATEWAY_REQUEST, frame["do"])
            with self._sending:
                if self._dead.is_set() or self._child is None:
                    raise self.error()
                send(self._child.channel, packet, descriptors)
        except FrameError as error:
            raise EgressError(str(error)) from error
        except OSError as error:
            self._kill()  # the process has exited or no longer reads
            self._dead.wait(_END_SECONDS)  # until the other thread has recorded the reason
            raise self.error() from error

    def _forget(self, number: int) -> None:
        with self._lock:
            self._sessions.pop(number, None)

    def _kill(self) -> None:
        if self._child:
            self._child.kill()

    def _run(self, rules: ProxyRules, caps: Caps) -> None:
        """Start the process, receive its frames until it exits, then wake all waiting threads."""
        try:
            self._child = SupervisedChild("securebench.egress.process", settings_to_json(rules, caps), paths=(_H11,))
            self._child.await_ready(_START_SECONDS)
            self._started.set()
            while frame := receive(self._child.channel):
                self._on_frame(frame.body)
        except (ChildError, OSError, FrameError) as error:
            self._reason = str(error)
        finally:
            self._end()

    def _on_frame(self, frame: Mapping[str, Any]) -> None:
        with self._lock:
            session = self._sessions.get(frame["session"]) if isinstance(frame.get("session"), int) else None
        if session is None:
            return
        if frame.get("is") == "log":
            self._write(session, frame.get("line"))
        else:
            session.answer = Answer(str(frame.get("is")), str(frame.get("why", "")), frame.get("report"))
            session.answered.set()

    def _write(self, session: GatewaySession, entry: object) -> None:
        if not isinstance(entry, dict) or any(isinstance(value, dict | list) for value in entry.values()):
            raise FrameError("the gateway sent a log line that is not a flat JSON object")
        try:
            session.log(entry)
        except Exception as error:  # noqa: BLE001 - the error affects only this session
            session.fault = error

    def _end(self) -> None:
        """Stop the process if it is still running, and wake all waiting threads."""
        if self._child:
            self._child.stop(_END_SECONDS)
            self._reason = self._reason or self._child.exit_reason()
        with self._sending, self._lock:
            self._dead.set()
            if self._child:
                self._child.close(0.0)
            sessions = list(self._sessions.values())
        self._started.set()
        for session in sessions:
            session.answered.set()
            for call in () if self._closed else session.on_death:
                # A callback may close a sandbox, which takes time.
                threading.Thread(target=_call, args=(call,), name="securebench-gateway-gone", daemon=True).start()


def _call(call: Callable[[], None]) -> None:
    with suppress(InfrastructureError):  # the session reports an error anyway
        call()
