"""Containers of the Docker driver, and commands in them (execs)."""

from __future__ import annotations

import base64
import json
import logging
import math
import threading
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import docker.errors

from securebench.engine.client import CALL_TIMEOUT
from securebench.errors import EngineError, ImageError, InfrastructureError
from securebench.sandboxes.docker.stream import EngineStream
from securebench.sandboxes.spec_rules import exact_argv, exact_environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from securebench.engine.client import Engine
    from securebench.sandboxes.base import Command

_log = logging.getLogger(__name__)

SIGKILLED = 137
"""The exit code after SIGKILL (128 + 9), sent for example by SecureBench, or by the kernel for lack of memory."""

_POLL_SECONDS = 0.005
_LOST = 128
"""The exit code of gVisor's runtime if the sandbox's kernel died with the command, for example for lack of memory."""
_EXIT_NOTICE_SECONDS = 1.0
"""Seconds to wait until the engine reports the container's exit, if a command's exit code is ``_LOST``."""
_STAT_HEADER = "X-Docker-Container-Path-Stat"
_PIECE = 1024 * 1024
_OOM_NOTICE_SECONDS = 1.0


class DockerTarget(ABC):
    """The container or exec behind a :class:`~securebench.sandboxes.docker.process.DockerProcess`."""

    @abstractmethod
    def exit_code(self, timeout: float) -> int:
        """Wait up to ``timeout`` seconds for the exit code, and return it. Raises :class:`InfrastructureError`."""

    @abstractmethod
    def out_of_memory(self) -> bool:
        """Whether the kernel killed a process of the container for lack of memory.

        Raises :class:`InfrastructureError` if another client of the engine sent the container a signal.
        """

    @abstractmethod
    def require_own_end(self) -> None:
        """Raise :class:`InfrastructureError` if another client of the engine sent the container a signal."""

    @abstractmethod
    def kill(self) -> None:
        """Kill all processes in the container. Raises :class:`InfrastructureError`."""


@dataclass(frozen=True, slots=True)
class DockerContainer(DockerTarget):
    """A container that this driver created. ``killed`` is set before this driver kills or removes it."""

    engine: Engine
    id: str
    killed: threading.Event = field(default_factory=threading.Event, compare=False)

    @classmethod
    def create(cls, engine: Engine, document: Mapping[str, Any]) -> DockerContainer:
        """Create a container. Raises :class:`InfrastructureError`, or :class:`ImageError` if the image is missing."""
        hint = "the image was removed during the run: build or pull it again, then continue with --resume"
        with engine.doing("create a sandbox", missing=ImageError, hint=hint):
            answer = engine.client.create_container_from_config(dict(document))  # type: ignore[no-untyped-call]  # in the stubs
            return cls(engine, answer["Id"])

    def attach(self, *, output: bool, stdin: bytes = b"") -> EngineStream:
        """Attach to the container's stdin and, with ``output``, stdout and stderr. Call this before :meth:`start`."""
        streams = "stdin=1&stdout=1&stderr=1" if output else "stdin=1"
        return EngineStream(self.engine.hijack(f"/containers/{self.id}/attach?stream=1&{streams}"), stdin)

    def start(self) -> None:
        """Start the container."""
        with self.engine.doing("start a sandbox"):
            self.engine.client.start(self.id)

    def exit_code(self, timeout: float) -> int:
        """Wait for the container's exit code, and return it."""
        with self.engine.doing("wait for a sandbox"):
            return int(self.engine.client.wait(self.id, timeout=math.ceil(timeout))["StatusCode"])

    def has_ended(self) -> bool:
        """Whether the container has exited or was removed."""
        with self.engine.doing("inspect a sandbox"):
            try:
                return not self.engine.client.inspect_container(self.id)["State"]["Running"]
            except docker.errors.NotFound:
                return True

    def ends_within(self, seconds: float) -> bool:
        """Whether the container has exited, or exits within ``seconds``."""
        deadline = time.monotonic() + seconds
        while not (ended := self.has_ended()) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        return ended

    def out_of_memory(self) -> bool:
        """Whether the kernel killed a process for lack of memory. Call this after the container has exited."""
        with self.engine.doing("inspect a sandbox"):
            found = bool(self.engine.client.inspect_container(self.id)["State"]["OOMKilled"])
        return self.ran_out_of_memory_since(0) or found

    def ran_out_of_memory_since(self, started: float) -> bool:
        """Whether the kernel killed a process for lack of memory since ``started``, in seconds since the epoch.

        The engine often learns of such a kill slightly after it learns of the exit, so this method waits a moment.
        Raises the error of :meth:`require_own_end_since`.
        """
        return "oom" in self._events(started, time.time() + _OOM_NOTICE_SECONDS)

    def require_own_end(self) -> None:
        """Raise :class:`InfrastructureError` if another client sent the container a signal, as ``docker stop`` does."""
        self.require_own_end_since(0)

    def require_own_end_since(self, started: float) -> None:
        """Raise :class:`InfrastructureError` if another client sent the container a signal since ``started``.

        Nothing in a sandbox can reach the engine, so a sandbox cannot cause this.
        """
        self._events(started, time.time())

    def _events(self, since: float, until: float) -> set[str]:
        """Return which events, ``oom`` or ``kill`` (any signal), the container had from ``since`` to ``until``.

        Raises :class:`InfrastructureError` if another client sent the container a signal.
        """
        with self.engine.doing("read its events"):
            events = self.engine.client.events(  # type: ignore[call-overload]  # the API takes fractions of a second
                since=since, until=until, filters={"container": self.id, "event": ["oom", "kill"]}, decode=True
            )
            found = {event["Action"] for event in events}
            events.close()
        if "kill" in found and not self.killed.is_set():
            raise InfrastructureError(
                "another client of the engine sent a signal to a sandbox",
                hint="check which other programs use the engine, then continue with --resume",
            )
        return found

    def mode(self, path: str) -> int | None:
        """Return Go's mode bits of ``path``, not following a link; ``None`` if it does not exist."""
        with self.engine.doing("inspect a sandbox's files"):
            answer = self.engine.client.head(self._archive_url(), params={"path": path}, timeout=CALL_TIMEOUT)
            if answer.status_code == HTTPStatus.NOT_FOUND:
                return None
            answer.raise_for_status()
            return int(json.loads(base64.b64decode(answer.headers[_STAT_HEADER]))["mode"])

    def archive(self, path: str) -> Iterator[bytes]:
        """Yield the directory ``path`` as pieces of a tar archive. Call this after the container has exited."""
        with self.engine.doing("read a sandbox's files"):
            answer = self.engine.client.get(
                self._archive_url(), params={"path": path}, stream=True, timeout=CALL_TIMEOUT
            )
            with answer:
                answer.raise_for_status()
                yield from answer.iter_content(_PIECE)

    def _archive_url(self) -> str:
        return f"{self.engine.client.base_url}/v{self.engine.api}/containers/{self.id}/archive"

    def kill(self) -> None:
        """Kill the container if it is still running."""
        self.killed.set()
        with self.engine.doing("kill a sandbox"):
            self._unless_over(lambda: self.engine.client.kill(self.id))

    def remove(self) -> None:
        """Kill the container if it still exists, and remove it with its volumes. Afterwards, no process of it runs."""
        self.killed.set()
        with self.engine.doing("remove a sandbox"):
            self._unless_over(lambda: self.engine.client.remove_container(self.id, v=True, force=True))

    def execute(self, command: Command) -> tuple[EngineStream, Exec]:
        """Start ``command`` in the container as an additional process."""
        client = self.engine.client
        with self.engine.doing("run a command in a sandbox"):
            exec_id = client.exec_create(
                self.id,
                exact_argv(command.argv),
                stdin=True,
                environment=exact_environment(command.environment),
                workdir=command.workdir,
            )["Id"]
        started = time.time()
        stream = self.engine.hijack(f"/exec/{exec_id}/start", {"Detach": False, "Tty": False})
        return EngineStream(stream, command.stdin, is_over=self.has_ended), Exec(self, exec_id, started)

    @staticmethod
    def _unless_over(call: Any) -> None:
        try:
            call()
        except docker.errors.APIError as error:
            # The container is gone, not running, or being removed by another request: nothing is left to do.
            if error.status_code not in {HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT}:
                raise


@dataclass(frozen=True, slots=True)
class Exec(DockerTarget):
    """A command in a persistent container. ``started`` is its start time, in seconds since the epoch."""

    container: DockerContainer
    id: str
    started: float

    def exit_code(self, timeout: float) -> int:
        """Poll for the command's exit code, and return it. The engine has no call that waits for an exec."""
        deadline = time.monotonic() + timeout
        while True:
            code = self._exit_code_now()
            if code == _LOST and self.container.ends_within(_EXIT_NOTICE_SECONDS):
                return SIGKILLED
            if code is not None:
                return code
            if time.monotonic() > deadline:
                raise EngineError("the engine did not stop a command in time", hint="check the engine's log")
            time.sleep(_POLL_SECONDS)

    def out_of_memory(self) -> bool:
        """Whether the kernel killed a process in the container for lack of memory since this command started."""
        return self.container.ran_out_of_memory_since(self.started)

    def require_own_end(self) -> None:
        """Raise :class:`InfrastructureError` if another client signaled the container since this command started."""
        self.container.require_own_end_since(self.started)

    def kill(self) -> None:
        """Kill the whole container: killing the command alone would leave its children running."""
        self.container.kill()

    def _exit_code_now(self) -> int | None:
        engine = self.container.engine
        with engine.doing("inspect a command"):
            try:
                state = engine.client.exec_inspect(self.id)
            except docker.errors.NotFound:
                return SIGKILLED  # the engine forgets the execs of a container that has exited
        return None if state["Running"] or state["ExitCode"] is None else int(state["ExitCode"])


def remove_quietly(container: DockerContainer) -> None:
    """Remove ``container``. If this fails, log a warning: the next run's reaper will remove it."""
    try:
        container.remove()
    except InfrastructureError as error:
        _log.warning("a sandbox could not be removed; the next run will remove it: %s", error.message)
