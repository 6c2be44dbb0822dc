"""The gateway process: it serves sessions until its run exits.

Every module that it needs is imported here, before it drops its privileges.
"""

from __future__ import annotations

import asyncio
import concurrent.futures.thread
import os
import socket
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from securebench.egress.codec import (
    plan_from_json,
    probe_to_json,
    relay_from_json,
    report_to_json,
    settings_from_json,
)
from securebench.egress.exit_reason import write_reason
from securebench.egress.hardening import harden
from securebench.egress.relay.probe import ask_provider
from securebench.egress.sessions import ServedSession
from securebench.errors import EgressError
from securebench.faults import FaultPoint, reached
from securebench.ipc.frames import Frame, FrameError, inherited_channel, pack, receive, send
from securebench.trials import TrialId

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from securebench.egress.rules import Caps, ProxyRules
    from securebench.resources import JsonValue

_RESOLVERS: Final = 64
"""Threads for DNS lookups."""


class Outbox:
    """Sends frames to the run in order. Posting never blocks: frames wait until the socket is writable."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._kept: deque[bytes] = deque()

    def post(self, frame: dict[str, Any]) -> None:
        """Send a frame. It is dropped if the run has exited: the closed channel will soon end this process too."""
        self._kept.append(pack(frame))
        if len(self._kept) == 1:
            self._flush()

    def _flush(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._kept:
                send(self._control, self._kept[0])
                self._kept.popleft()
        except BlockingIOError:
            loop.add_writer(self._control, self._flush)
        except OSError:
            self._kept.clear()
        else:
            loop.remove_writer(self._control)


class Service:
    """Handles frames in order. Closing a session and probing a provider take time and run in the background."""

    def __init__(self, control: socket.socket, settings: tuple[ProxyRules, Caps]) -> None:
        self._control = control
        self._settings = settings
        self._outbox = Outbox(control)
        self._sessions: dict[int, ServedSession] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._frames: asyncio.Queue[Frame | None] = asyncio.Queue()

    async def run(self) -> None:
        """Serve until the connection to the run is closed or fails, or an invalid frame arrives."""
        loop = asyncio.get_running_loop()
        loop.set_default_executor(concurrent.futures.thread.ThreadPoolExecutor(_RESOLVERS))
        loop.add_reader(self._control, self._receive)
        self._outbox.post({"is": "ready"})
        while (frame := await self._frames.get()) is not None:
            await self._do(frame.body, frame.descriptors)

    def _receive(self) -> None:
        try:
            self._frames.put_nowait(receive(self._control, 1))
        except BlockingIOError:
            return
        except (OSError, FrameError) as error:  # an unknown request was lost, so it is safer to exit
            write_reason(error)
            self._frames.put_nowait(None)

    async def _do(self, frame: dict[str, Any], descriptors: list[int]) -> None:
        reached(FaultPoint.GATEWAY_SERVE, frame["do"])
        match frame["do"]:
            case "open":
                self._open(frame)
            case "listen":
                await self._listen(frame, socket.socket(fileno=descriptors[0]))
            case "close":
                self._start(self._close(frame["session"]))
            case "probe":
                self._start(self._probe(frame))

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _open(self, frame: dict[str, Any]) -> None:
        number = frame["session"]

        def log(line: dict[str, JsonValue]) -> None:
            self._outbox.post({"is": "log", "session": number, "line": line})

        try:
            plan = plan_from_json(frame["plan"])
            self._sessions[number] = ServedSession(TrialId(*frame["trial"]), plan, self._settings, log)
        except Exception as error:  # noqa: BLE001 - this session fails; the others continue
            self._outbox.post({"is": "failed", "session": number, "why": _why(error)})
        else:
            self._outbox.post({"is": "opened", "session": number})

    async def _listen(self, frame: dict[str, Any], listener: socket.socket) -> None:
        session = self._sessions.get(frame["session"])
        if session is None:  # closed in the meantime
            listener.close()
        else:
            listener.setblocking(False)
            await session.listen(frame["forwarded_port"], listener)

    async def _close(self, number: int) -> None:
        try:
            report = await self._sessions.pop(number).close()
        except Exception as error:  # noqa: BLE001 - an internal error: this session has no report; the others continue
            write_reason(error)
            self._outbox.post({"is": "failed", "session": number, "why": _why(error)})
        else:
            self._outbox.post({"is": "closed", "session": number, "report": report_to_json(report)})

    async def _probe(self, frame: dict[str, Any]) -> None:
        number = frame["session"]
        try:
            report = await ask_provider(relay_from_json(frame["plan"]), frame["model"])
        except Exception as error:  # noqa: BLE001 - as in _open
            self._outbox.post({"is": "failed", "session": number, "why": _why(error)})
        else:
            self._outbox.post({"is": "probed", "session": number, "report": probe_to_json(report)})


def _why(error: Exception) -> str:
    """Return the message of an :class:`EgressError`, or only the type of any other exception.

    The message of another exception may quote the key.
    """
    return error.message if isinstance(error, EgressError) else type(error).__name__


def main(descriptor: int) -> None:
    """Serve the run at the other end of ``descriptor``. Never returns."""
    code = 1
    try:
        control, settings = inherited_channel(descriptor)
        control.setblocking(False)
        harden()
        loop = asyncio.new_event_loop()
        loop.set_exception_handler(lambda _, context: write_reason(context.get("exception") or RuntimeError()))
        loop.run_until_complete(Service(control, settings_from_json(settings.body)).run())
        code = 0
    except BaseException as error:  # noqa: BLE001 - the reason is reported, then the process exits
        write_reason(error)
    finally:
        # Do not join threads that still wait for DNS: their answers are no longer needed.
        os._exit(code)
