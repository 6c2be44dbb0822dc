"""The driver's end of its keeper: starting it, asking it, and hearing how each job went."""

from __future__ import annotations

import errno
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import threading
import time
import weakref
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from securebench.errors import EngineError, InfrastructureError
from securebench.sandboxes.oci.wire import DOORS, KILL, LIMIT, receive_frame, receive_report, send_frame

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from securebench.sandboxes.oci.runtime import Runtime

_HELLO_SECONDS: Final = 30.0
_END_SECONDS: Final = 10.0
_SOURCE: Final = Path(__file__).resolve().parents[3]
_BOOT: Final = (
    f"import sys; sys.path.append({str(_SOURCE)!r}); "
    "from securebench.sandboxes.oci.keeper.main import main; main(sys.argv[1])"
)
_NAMESPACES: Final = ("--mount", "--propagation", "slave", "--net", "--pid", "--fork", "--kill-child", "--mount-proc")


@dataclass(frozen=True, slots=True)
class Hello:
    """What a keeper found.

    The id maps of its user namespace, as ``/proc`` has them; whether a sandbox can be rid of its user's other groups;
    the cgroup controllers that it can use, and whether they are in one hierarchy (version 2).
    """

    uid_map: str
    gid_map: str
    drops_groups: bool
    controllers: tuple[str, ...]
    unified: bool


class Link:
    """A keeper, started in the background. ``run`` is its directory, ``group`` the name of its cgroups.

    ``files`` are shown below ``run`` by their names. Thread safe.
    """

    def __init__(self, run: Path, group: str, files: Mapping[str, str], runtime: Runtime) -> None:
        """Start it. Raises :class:`EngineError` (``sandbox-unavailable``) where that cannot even be tried."""
        self._sending = threading.Lock()
        self._hello: Hello | None = None
        self._control, theirs = socket.socketpair()
        owner = os.pidfd_open(os.getpid())
        sealed = runtime.path if runtime.copies_itself else None
        around = {"run": str(run), "group": group, "inner_groups": runtime.owns_cgroups, "sealed": sealed}
        named = {"surroundings": around, "files": dict(files)}
        settings = json.dumps({**named, "control": theirs.fileno(), "owner": owner})
        try:
            self._process = subprocess.Popen(  # noqa: S603 - a program of this machine, and our own code
                [*_unshare(), sys.executable, "-I", "-S", "-c", _BOOT, settings],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=(theirs.fileno(), owner),
                env={"PATH": os.defpath},
                cwd="/",
                start_new_session=True,  # an interrupt from the terminal is the driver's to handle
            )
        except OSError as error:
            self._control.close()
            raise _unavailable(str(error)) from error
        finally:
            theirs.close()
            os.close(owner)

    def hello(self) -> Hello:
        """Return what the keeper found, once it is ready.

        Raises :class:`EngineError`: ``sandbox-unavailable`` if it never was, ``sandbox-keeper-gone`` if it is no more.
        """
        with self._sending:
            if self._hello is None:
                self._hello = self._await_hello()
            elif self._process.poll() is not None:
                raise gone()
            return self._hello

    def start(
        self, request: Mapping[str, Any], document: bytes, streams: Sequence[int], within: Job | None = None
    ) -> Job:
        """Start a job on three standard streams, ``within`` another. Raises :class:`EngineError` without a keeper."""
        with exhaustion():
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        job = Job(ours, within)
        try:
            with self._sending:
                send_frame(self._control, request, document, (theirs.fileno(), *streams))
        except OSError as error:
            raise gone() from error
        finally:
            theirs.close()
        return job

    def close(self) -> None:
        """End the keeper, and with it every sandbox; idempotent. When this returns none is left."""
        with suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()  # the kernel then ends the keeper, and all that it keeps
            self._process.wait()
        self._control.close()
        if self._process.stderr is not None:
            self._process.stderr.close()

    def _await_hello(self) -> Hello:
        self._control.settimeout(_HELLO_SECONDS)
        try:
            frame = receive_frame(self._control)
        except OSError as error:
            raise _unavailable(f"it does not answer: {error}") from error
        self._control.settimeout(None)
        if frame is None or "failed" in frame[0]:
            raise _unavailable(self._last_words() if frame is None else frame[0]["failed"])
        return Hello(**{**frame[0], "controllers": tuple(frame[0]["controllers"])})

    def _last_words(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)
        said = b"" if self._process.stderr is None else self._process.stderr.read()
        lines = said.decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else f"it ended with {self._process.returncode}"


class Job:
    """A container, or a command in one, as its driver sees it. Thread safe. ``fileno`` is for polling alone.

    ``within`` is the container in which it runs, if it is a command. ``descriptor`` came with its report, or is -1: a
    directory that the container has changed.
    """

    def __init__(self, channel: socket.socket, within: Job | None = None) -> None:
        self._channel = channel
        self._within = within
        weakref.finalize(self, channel.close)  # not before: somebody may be polling it
        self._reading = threading.Lock()
        self._report: dict[str, Any] | None = None
        self._lost = False
        self._listeners: list[socket.socket] | None = None
        self.descriptor = -1

    def fileno(self) -> int:
        """Return the descriptor that becomes readable with the report, and hangs up with the end."""
        return self._channel.fileno()

    def is_over(self) -> bool:
        """Whether its end was reported, or will never be."""
        with self._reading:
            if self._report is None and not self._lost:
                self._read()
            return self._report is not None or self._lost

    def report(self, timeout: float) -> dict[str, Any]:
        """Wait for its end. Raises :class:`EngineError` when the keeper is gone, or silent for ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        while not self.is_over():
            self._await_readable(deadline)
        if self._report is None:
            raise gone()
        return self._report

    def listeners(self, timeout: float) -> list[socket.socket]:
        """Wait for the listening sockets of its doors. None if it ended before, as :meth:`report` then says.

        Raises as :meth:`report` does, and :class:`InfrastructureError` when this process has no room for them.
        """
        deadline = time.monotonic() + timeout
        with self._reading:
            while self._listeners is None and self._report is None and not self._lost:
                self._await_readable(deadline)
                self._read()
            listeners, self._listeners = self._listeners or [], None
        return listeners

    def await_end(self, timeout: float) -> None:
        """Wait for its end, however it is told: without a keeper nothing runs at all."""
        with suppress(EngineError):
            self.report(timeout)

    @property
    def is_command(self) -> bool:
        """Whether it runs in a container that was there before it."""
        return self._within is not None

    def fell(self, patience: float) -> bool:
        """Whether the container in which it ran has ended as well, or does within ``patience`` seconds."""
        if self._within is None:
            return False
        try:
            self._within.report(patience)
        except EngineError:  # it lives, or nobody can say how it went
            return False
        return True

    def kill(self) -> None:
        """Ask for the end of its whole sandbox, and do not wait for it."""
        with suppress(OSError):
            self._channel.send(KILL, socket.MSG_NOSIGNAL)

    def limit(self, seconds: float) -> None:
        """Give it so much time, from now on."""
        with suppress(OSError):
            self._channel.send(LIMIT + str(seconds).encode("ascii"), socket.MSG_NOSIGNAL)

    def hang_up(self) -> None:
        """Let go of it: the keeper ends it if it still runs, and whoever polls sees a hang-up."""
        with suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)

    def forget_changes(self) -> None:
        """Let go of what ``descriptor`` is of. Who still reads it finds nothing, and nothing else, by its number."""
        with self._reading:
            if self._report is None and not self._lost:
                self._read()
            if self.descriptor >= 0:
                os.dup2(self._channel.fileno(), self.descriptor, inheritable=False)

    def _await_readable(self, deadline: float) -> None:
        poll = select.poll()
        poll.register(self, select.POLLIN)
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise EngineError("nothing was heard of a sandbox in time", hint="look at what keeps this machine busy")

    def _read(self) -> None:
        try:
            received = receive_report(self._channel)
        except BlockingIOError:
            return
        except OSError:
            received = None
        if received is None:
            self._lost = True
            return
        report, descriptors = received
        if DOORS in report:
            self._listeners = _sockets(descriptors, report[DOORS])
            return
        self._report = report
        if descriptors:
            self.descriptor = descriptors[0]
            weakref.finalize(self, os.close, self.descriptor)  # not before: somebody may be reading it


def _sockets(descriptors: list[int], expected: int) -> list[socket.socket]:
    listeners = [socket.socket(fileno=descriptor) for descriptor in descriptors]
    with exhaustion():
        if len(listeners) < expected:  # the kernel gives those that there is room for
            for listener in listeners:
                listener.close()
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    return listeners


@contextmanager
def exhaustion() -> Iterator[None]:
    """Say so where this process has no room for more descriptors. Raises :class:`InfrastructureError`."""
    try:
        yield
    except OSError as error:
        raise InfrastructureError(
            f"this process cannot start another sandbox: {error}",
            hint="raise its limit of open files (ulimit -n), or run fewer tasks at once (--workers)",
        ) from error


def gone() -> EngineError:
    """Return the error that says that the keeper is gone."""
    return EngineError(
        "the process that keeps the sandboxes has ended, and all of them with it",
        code="sandbox-keeper-gone",
        hint="see whether something killed it, as the kernel does for want of memory; then go on with --resume",
    )


def _unshare() -> list[str]:
    program = shutil.which("unshare")
    if not program:
        raise _unavailable("the program 'unshare' is not installed")
    return [program, *_user_namespace(), *_NAMESPACES]


def _user_namespace() -> list[str]:
    """Return what an ordinary user needs: a user namespace, with subordinate ids if he has any."""
    if os.geteuid() == 0:
        return []
    mapped = shutil.which("newuidmap") and shutil.which("newgidmap") and _has_subordinate_ids()
    return ["--user", "--map-root-user", *(["--map-auto"] if mapped else [])]


def _has_subordinate_ids() -> bool:
    import pwd

    uid = os.getuid()
    try:
        names = {pwd.getpwuid(uid).pw_name, str(uid)}
    except KeyError:
        names = {str(uid)}
    return all(_names_in(path) & names for path in (Path("/etc/subuid"), Path("/etc/subgid")))


def _names_in(path: Path) -> set[str]:
    try:
        return {line.split(":", 1)[0] for line in path.read_text().splitlines()}
    except OSError:
        return set()


def _unavailable(why: str) -> EngineError:
    return EngineError(
        f"no sandbox can be made here without an engine: {why}",
        code="sandbox-unavailable",
        hint="run 'securebench doctor': it says what this machine lacks, as user namespaces for ordinary users",
    )
