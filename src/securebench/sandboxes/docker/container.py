"""One container, or one exec in it, as calls to the engine: each method is one request."""

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
from securebench.sandboxes.arguments import exact_argv, exact_environment
from securebench.sandboxes.docker.stream import EngineStream

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from securebench.engine.client import Engine
    from securebench.sandboxes.base import Command

_log = logging.getLogger(__name__)

SIGKILLED = 137
"""128 + SIGKILL: ended from outside, by us or by the kernel for want of memory."""

_POLL_SECONDS = 0.005
_LOST = 128
"""What gVisor's runtime ends with that lost sight of its command, as its whole kernel fell: by its memory, perhaps."""
_FALL_SECONDS = 1.0
"""How long the engine may take to see that too. A command that ends with that code by itself waits as long."""
_STAT_HEADER = "X-Docker-Container-Path-Stat"
_PIECE = 1024 * 1024
_OOM_NOTICE_SECONDS = 1.0


class DockerTarget(ABC):
    """What a :class:`~securebench.sandboxes.docker.process.DockerProcess` stands for: a container or an exec."""

    @abstractmethod
    def exit_code(self, timeout: float) -> int:
        """Wait for its end, ``timeout`` seconds at most. Raises :class:`InfrastructureError`."""

    @abstractmethod
    def out_of_memory(self) -> bool:
        """Whether the kernel killed something of it for want of memory.

        Raises :class:`InfrastructureError` if somebody else ended its container through the engine.
        """

    @abstractmethod
    def kill(self) -> None:
        """End everything in its container. Raises :class:`InfrastructureError`."""


@dataclass(frozen=True, slots=True)
class DockerContainer(DockerTarget):
    """A container of ours."""

    engine: Engine
    id: str
    ended_by_us: threading.Event = field(default_factory=threading.Event, compare=False)

    @classmethod
    def create(cls, engine: Engine, document: Mapping[str, Any]) -> DockerContainer:
        """Create it. Raises :class:`ImageError` when its image is gone, else :class:`InfrastructureError`."""
        hint = "the image was removed while the run used it: build or pull it again, then continue with --resume"
        with engine.doing("create a sandbox", missing=ImageError, hint=hint):
            answer = engine.client.create_container_from_config(dict(document))  # type: ignore[no-untyped-call]  # so the stubs
            return cls(engine, answer["Id"])

    def attach(self, *, output: bool, stdin: bytes = b"") -> EngineStream:
        """Return its stdin and, if ``output``, its stdout and stderr. To be called before it starts."""
        streams = "stdin=1&stdout=1&stderr=1" if output else "stdin=1"
        return EngineStream(self.engine.hijack(f"/containers/{self.id}/attach?stream=1&{streams}"), stdin)

    def start(self) -> None:
        """Start it."""
        with self.engine.doing("start a sandbox"):
            self.engine.client.start(self.id)

    def exit_code(self, timeout: float) -> int:
        """Wait for its end."""
        with self.engine.doing("wait for a sandbox"):
            return int(self.engine.client.wait(self.id, timeout=math.ceil(timeout))["StatusCode"])

    def has_ended(self) -> bool:
        """Whether nothing of it runs any more."""
        with self.engine.doing("inspect a sandbox"):
            try:
                return not self.engine.client.inspect_container(self.id)["State"]["Running"]
            except docker.errors.NotFound:
                return True

    def ends_within(self, patience: float) -> bool:
        """Whether it has ended, or does so in ``patience`` seconds."""
        deadline = time.monotonic() + patience
        while not (ended := self.has_ended()) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        return ended

    def out_of_memory(self) -> bool:
        """Whether the kernel killed something in it. To be asked when it has ended."""
        with self.engine.doing("inspect a sandbox"):
            found = bool(self.engine.client.inspect_container(self.id)["State"]["OOMKilled"])
        return self.ran_out_of_memory_since(0) or found

    def ran_out_of_memory_since(self, started: float) -> bool:
        """Whether the kernel killed something in it after ``started``, in seconds since the epoch.

        The engine hears of it apart from the end of the process, often a little later, so it is given a moment. Raises
        :class:`InfrastructureError` if the engine was asked to end it, and not by this driver: nothing in a sandbox can
        reach the engine, so that is told from all that a sandbox can do to itself.
        """
        with self.engine.doing("read its events"):
            events = self.engine.client.events(  # type: ignore[call-overload]  # the API takes fractions of a second
                since=started,
                until=time.time() + _OOM_NOTICE_SECONDS,
                filters={"container": self.id, "event": ["oom", "kill"]},
                decode=True,
            )
            found = {event["Action"] for event in events}
            events.close()
        if "kill" in found and not self.ended_by_us.is_set():
            raise InfrastructureError(
                "a sandbox was killed through the engine, and not by this run",
                hint="look at who else uses the engine, then continue with --resume",
            )
        return "oom" in found

    def mode(self, path: str) -> int | None:
        """Return Go's mode bits of ``path`` in it, itself and no link's target; ``None`` if there is nothing."""
        with self.engine.doing("look at what a sandbox left"):
            answer = self.engine.client.head(self._archive_url(), params={"path": path}, timeout=CALL_TIMEOUT)
            if answer.status_code == HTTPStatus.NOT_FOUND:
                return None
            answer.raise_for_status()
            return int(json.loads(base64.b64decode(answer.headers[_STAT_HEADER]))["mode"])

    def archive(self, path: str) -> Iterator[bytes]:
        """Give the directory ``path`` of it as a tar archive, in pieces. To be asked when it has ended."""
        with self.engine.doing("give what a sandbox left"):
            answer = self.engine.client.get(
                self._archive_url(), params={"path": path}, stream=True, timeout=CALL_TIMEOUT
            )
            with answer:
                answer.raise_for_status()
                yield from answer.iter_content(_PIECE)

    def _archive_url(self) -> str:
        return f"{self.engine.client.base_url}/v{self.engine.api}/containers/{self.id}/archive"

    def kill(self) -> None:
        """End it, if it still runs."""
        self.ended_by_us.set()
        with self.engine.doing("kill a sandbox"):
            self._unless_over(lambda: self.engine.client.kill(self.id))

    def remove(self) -> None:
        """End and remove it with its volumes, if it is still there. When this returns nothing of it runs."""
        self.ended_by_us.set()
        with self.engine.doing("remove a sandbox"):
            self._unless_over(lambda: self.engine.client.remove_container(self.id, v=True, force=True))

    def execute(self, command: Command) -> tuple[EngineStream, Exec]:
        """Run ``command`` in it beside what runs already."""
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
            # Not there, not running any more, or being removed by another request: that is what was wanted.
            if error.status_code not in {HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT}:
                raise


@dataclass(frozen=True, slots=True)
class Exec(DockerTarget):
    """A command in a persistent container. It started at ``started``, seconds since the epoch."""

    container: DockerContainer
    id: str
    started: float

    def exit_code(self, timeout: float) -> int:
        """Wait for its end. The engine has no call that waits for an exec, so it is asked until it says so."""
        deadline = time.monotonic() + timeout
        while True:
            code = self._exit_code_now()
            if code == _LOST and self.container.ends_within(_FALL_SECONDS):
                return SIGKILLED
            if code is not None:
                return code
            if time.monotonic() > deadline:
                raise EngineError("the engine did not end a command in time", hint="look at the engine's log")
            time.sleep(_POLL_SECONDS)

    def out_of_memory(self) -> bool:
        """Whether the kernel killed something in its container since it started."""
        return self.container.ran_out_of_memory_since(self.started)

    def kill(self) -> None:
        """End the whole container: killing one of its processes would leave others."""
        self.container.kill()

    def _exit_code_now(self) -> int | None:
        engine = self.container.engine
        with engine.doing("look at a command"):
            try:
                state = engine.client.exec_inspect(self.id)
            except docker.errors.NotFound:
                return SIGKILLED  # the engine forgets the commands of a container that has ended
        return None if state["Running"] or state["ExitCode"] is None else int(state["ExitCode"])


def remove_quietly(container: DockerContainer) -> None:
    """Remove ``container``; a failure is logged and left to the reaper."""
    try:
        container.remove()
    except InfrastructureError as error:
        _log.warning("a sandbox could not be removed, the next run will: %s", error.message)
