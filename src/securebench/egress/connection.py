"""The run's end of its gateway: starting the process, asking it, and noticing at once when it dies."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import h11

from securebench.egress.codec import probe_from_json, report_from_json
from securebench.egress.frames import FrameError, pack, receive, send
from securebench.errors import EgressError, InfrastructureError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from securebench.egress.model import EgressReport, ProbeReport
    from securebench.resources import JsonValue

_START_SECONDS: Final = 30.0
_ANSWER_SECONDS: Final = 15.0
"""For an answer: the process ends a session in a third of that."""
_PROBE_SECONDS: Final = 60.0
"""For a question to a provider, which the process gives up after half of that."""
_END_SECONDS: Final = 5.0
_WORDS: Final = 4096
_PLACES: Final = (str(Path(__file__).resolve().parents[2]), str(Path(h11.__file__).resolve().parents[1]))
"""Where the process finds this package and its one dependency: it asks no variable and no ``.pth`` file."""
_BOOT: Final = (
    f"import sys; sys.path += {_PLACES!r}; from securebench.egress.process import main; main(int(sys.argv[1]))"
)


@dataclass(slots=True)
class Line:
    """One session, as the link keeps it. ``answer`` is the last frame about it."""

    log: Callable[[Mapping[str, JsonValue]], None]
    answered: threading.Event = field(default_factory=threading.Event)
    answer: dict[str, Any] = field(default_factory=dict)
    on_death: list[Callable[[], None]] = field(default_factory=list)
    fault: Exception | None = None
    """What kept a line of the log from being written."""


class GatewayConnection:
    """A gateway's process. Thread safe. Every wait in it has an end."""

    def __init__(self, settings: dict[str, Any]) -> None:
        """Start it and wait until it serves. Raises :class:`EgressError`."""
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._lines: dict[int, Line] = {}
        self._started = threading.Event()
        self._dead = threading.Event()
        self._closed = False
        self._process: subprocess.Popen[bytes] | None = None
        self._why = ""
        self._words = os.memfd_create("gateway_stderr", os.MFD_CLOEXEC)
        self._control, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(_ANSWER_SECONDS), 0))
        # The process is told to die with the *thread* that starts it, so that has to be the one which lives as long.
        self._thread = threading.Thread(target=self._live, name="securebench-gateway", daemon=True)
        self._thread.start()
        self._send({"do": "start", "settings": settings})
        self._started.wait(_START_SECONDS)
        if self._dead.is_set() or not self._started.is_set():
            self.close()
            raise self.error()

    @property
    def is_dead(self) -> bool:
        """Whether the process has ended."""
        return self._dead.is_set()

    def open(self, number: int, request: Mapping[str, Any], log: Callable[[Mapping[str, JsonValue]], None]) -> None:
        """Open session ``number``, whose log goes to ``log``. Raises :class:`EgressError`."""
        line = Line(log)
        with self._lock:
            self._lines[number] = line
        answer: dict[str, Any] = {}
        try:
            answer = self._ask(line, {"do": "open", "session": number, **request})
        finally:
            if answer.get("is") != "opened":
                self._forget(number)
        if answer.get("is") != "opened":
            raise EgressError(f"the gateway cannot serve this task: {answer.get('why')}")

    def listen(self, number: int, forwarded_port: str, listener: socket.socket) -> None:
        """Let the process serve ``forwarded_port`` of a session on ``listener``, which is closed here. Raises nothing.

        Where the process is gone, who waits for the session is told so elsewhere.
        """
        with listener, suppress(EgressError):
            self._send({"do": "listen", "session": number, "forwarded_port": forwarded_port}, listener.fileno())

    def finish(self, number: int) -> EgressReport:
        """End a session. Raises :class:`EgressError`, also where its log could not be written."""
        line = self._lines[number]
        try:
            report = report_from_json(self._ask(line, {"do": "close", "session": number}).get("report"))
        except FrameError as error:
            raise EgressError(f"the gateway's report is damaged: {error}") from error
        finally:
            self._forget(number)
        if line.fault:
            raise EgressError(f"the egress log cannot be written: {line.fault}") from line.fault
        return report

    def probe(self, number: int, request: Mapping[str, Any]) -> ProbeReport:
        """Have the process ask a provider a question of our own. Raises :class:`EgressError`."""
        line = Line(lambda _line: None)
        with self._lock:
            self._lines[number] = line
        try:
            answer = self._ask(line, {"do": "probe", "session": number, **request}, _PROBE_SECONDS)
            if answer.get("is") != "probed":
                raise EgressError(f"the gateway cannot ask the provider: {answer.get('why')}")
            return probe_from_json(answer.get("report"))
        except FrameError as error:
            raise EgressError(f"the gateway's report is damaged: {error}") from error
        finally:
            self._forget(number)

    def on_death(self, number: int, call: Callable[[], None]) -> None:
        """Call it when the process dies while the session is open; at once if it has."""
        with self._lock:
            line = self._lines.get(number)
            if line and not self._dead.is_set():
                line.on_death.append(call)
                return
        if line:
            call()

    def close(self) -> None:
        """End the process, and wait for its end. Idempotent."""
        self._closed = True
        with suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)
        self._thread.join(3 * _END_SECONDS)

    def error(self) -> EgressError:
        """Return what there is to say of its end."""
        return EgressError(
            f"the egress gateway exited unexpectedly: {self._why or 'it was closed'}",
            hint="check whether something killed it (the kernel, for lack of memory?), then continue with --resume",
        )

    def _ask(self, line: Line, frame: Mapping[str, Any], seconds: float = _ANSWER_SECONDS) -> dict[str, Any]:
        line.answered.clear()
        self._send(frame)
        if not line.answered.wait(seconds):
            self._why = "it did not answer"
            self._kill()
            line.answered.wait(_ANSWER_SECONDS)
        if self._dead.is_set():
            raise self.error()
        return line.answer

    def _send(self, frame: Mapping[str, Any], descriptor: int = -1) -> None:
        try:
            packet = pack(frame)
            with self._sending:
                if self._dead.is_set():
                    raise self.error()
                send(self._control, packet, descriptor)
        except FrameError as error:
            raise EgressError(str(error)) from error
        except OSError as error:
            self._kill()  # it has ended, or takes nothing any more
            self._dead.wait(_END_SECONDS)  # then the other thread knows more of it
            raise self.error() from error

    def _forget(self, number: int) -> None:
        with self._lock:
            self._lines.pop(number, None)

    def _kill(self) -> None:
        if self._process:
            self._process.kill()

    def _live(self) -> None:
        """Start the process, hear it to its end, and tell everybody. On a thread of its own."""
        try:
            self._process = self._start()
            with suppress(ConnectionError):  # how an end looks to who has just said something
                while frame := receive(self._control):
                    self._hear(frame[0])
        except (OSError, FrameError) as error:
            self._why = str(error)
        finally:
            self._theirs.close()
            self._end()

    def _start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(  # noqa: S603 - our own code
            [sys.executable, "-I", "-S", "-c", _BOOT, str(self._theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._words,
            pass_fds=(self._theirs.fileno(),),
            env={},
            cwd="/",
            start_new_session=True,  # an interrupt from the terminal is the run's to handle
        )
        self._theirs.close()
        return process

    def _hear(self, frame: Mapping[str, Any]) -> None:
        if frame.get("is") == "ready":
            self._started.set()
            return
        with self._lock:
            line = self._lines.get(frame["session"]) if isinstance(frame.get("session"), int) else None
        if line is None:
            return
        if frame.get("is") == "log":
            self._write(line, frame.get("line"))
        else:
            line.answer = dict(frame)
            line.answered.set()

    def _write(self, line: Line, entry: object) -> None:
        if not isinstance(entry, dict) or any(isinstance(value, dict | list) for value in entry.values()):
            raise FrameError("a line of the log is not a flat object")
        try:
            line.log(entry)
        except Exception as error:  # noqa: BLE001 - whose log it is will hear of it, and the others go on
            line.fault = error

    def _end(self) -> None:
        """Let nothing of the process be left, and wake whoever waits."""
        code = self._reap()
        self._why = self._why or self._exit_reason() or _ending(code)
        with self._sending, self._lock:
            self._dead.set()
            self._control.close()
            os.close(self._words)
            lines = list(self._lines.values())
        self._started.set()
        for line in lines:
            line.answered.set()
            for call in () if self._closed else line.on_death:
                # Each closes a sandbox, which takes time.
                threading.Thread(target=_tell, args=(call,), name="securebench-gateway-gone", daemon=True).start()

    def _reap(self) -> int | None:
        if self._process is None:
            return None
        with suppress(subprocess.TimeoutExpired):  # what it was told by the end of the connection
            return self._process.wait(_END_SECONDS)
        self._process.kill()
        return self._process.wait()

    def _exit_reason(self) -> str:
        size = os.fstat(self._words).st_size
        said = os.pread(self._words, _WORDS, max(0, size - _WORDS)).decode("utf-8", "replace").strip()
        return said.splitlines()[-1] if said else ""


def _tell(call: Callable[[], None]) -> None:
    with suppress(InfrastructureError):  # that session ends in an error anyway
        call()


def _ending(code: int | None) -> str:
    return f"exit status {code}" if code is None or code >= 0 else f"killed by signal {-code}"
