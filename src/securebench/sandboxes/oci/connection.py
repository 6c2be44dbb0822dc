"""The driver's side of the protocol with its supervisor: the connection, and a handle of each started process.

:mod:`securebench.sandboxes.oci.wire` describes the protocol.
"""

from __future__ import annotations

import errno
import os
import select
import shutil
import socket
import threading
import time
import weakref
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from securebench.errors import EngineError, InfrastructureError
from securebench.faults import FaultPoint, reached
from securebench.images.store.ids import tree_shift
from securebench.ipc.child import ChildError, SupervisedChild
from securebench.ipc.frames import FrameError, channel_pair, pack, receive, send
from securebench.sandboxes.oci.wire import (
    BOUNDED,
    FORWARDED_PORTS,
    KILL,
    LIMIT,
    REPORT_DESCRIPTORS,
    ProcessReport,
    SupervisorSettings,
    write_request,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from securebench.sandboxes.oci.runtime import OciRuntime
    from securebench.sandboxes.optimisations import Optimisations

_READY_SECONDS: Final = 30.0
_END_SECONDS: Final = 10.0
_START: Final = pack({})
_NAMESPACES: Final = ("--mount", "--propagation", "slave", "--net", "--pid", "--fork", "--kill-child", "--mount-proc")


@dataclass(frozen=True, slots=True)
class Hello:
    """What a supervisor reports when it is ready.

    ``uid_map`` and ``gid_map`` are those of its user namespace, as in ``/proc``. ``drops_groups`` is true if sandboxes
    can drop the user's supplementary groups. ``controllers`` are the cgroup controllers that the supervisor can use.
    ``unified`` is true if they are in a single hierarchy (cgroup version 2).
    """

    uid_map: str
    gid_map: str
    drops_groups: bool
    controllers: tuple[str, ...]
    unified: bool


class SupervisorConnection:
    """A supervisor process, started in the background, and the connection to it. Thread-safe.

    ``run`` is the supervisor's directory and ``group`` the name of its cgroups. The supervisor copies ``files``
    (paths by name) to a directory below ``run``.
    """

    def __init__(
        self, run: Path, group: str, files: Mapping[str, str], runtime: OciRuntime, optimisations: Optimisations
    ) -> None:
        """Start the supervisor. Raises :class:`EngineError` (``sandbox-unavailable``) if this fails."""
        self._sending = threading.Lock()
        self._hello: Hello | None = None
        settings = SupervisorSettings(
            run=str(run),
            group=group,
            inner_groups=runtime.owns_cgroups,
            owner=tree_shift(),
            unreadable=runtime.can_run_unreadable,
            locks_root=runtime.locks_root,
            sealed=runtime.path if runtime.copies_itself and optimisations.sealed_runtime else None,
            pooled=optimisations.cgroup_pool,
        )
        owner = os.pidfd_open(os.getpid())
        try:
            self._child = SupervisedChild(
                "securebench.sandboxes.oci.supervisor.main",
                {"context": asdict(settings), "files": dict(files)},
                (owner,),
                launcher=_unshare(),
                environment={"PATH": os.defpath},  # so that unshare finds newuidmap
            )
        except ChildError as error:
            raise _unavailable(str(error)) from error
        finally:
            os.close(owner)

    def hello(self) -> Hello:
        """Wait until the supervisor is ready, and return its report.

        Raises :class:`EngineError`: ``sandbox-unavailable`` if the supervisor did not become ready,
        ``sandbox-supervisor-gone`` if it was ready before but has exited.
        """
        with self._sending:
            if self._hello is None:
                try:
                    found = self._child.await_ready(_READY_SECONDS)
                except ChildError as error:
                    raise _unavailable(str(error)) from error
                self._hello = Hello(**{**found, "controllers": tuple(found["controllers"])})
            elif not self._child.is_running():
                raise gone()
            return self._hello

    def start(
        self, request: Mapping[str, Any], document: bytes, streams: Sequence[int], within: ProcessHandle | None = None
    ) -> ProcessHandle:
        """Start the process that ``request`` describes, and return its handle.

        ``document`` is the configuration that the runtime reads. ``streams`` are the descriptors for stdin, stdout and
        stderr. For a command in an existing container, ``within`` is the handle of that container. Raises
        :class:`EngineError` if the supervisor is gone, and :class:`InfrastructureError` if this process has too many
        open files.
        """
        with descriptor_errors():
            reached(FaultPoint.SUPERVISOR_REQUEST)
            local, remote = channel_pair()
            local.setblocking(False)
            handle = ProcessHandle(local, within)
            with remote:
                payload = write_request(request, document)
                try:
                    self._send_start((remote.fileno(), payload, *streams))
                finally:
                    os.close(payload)
        return handle

    @contextmanager
    def bounded(self, directory: Path, size: int) -> Iterator[int]:
        """Mount a file system of ``size`` bytes in memory at ``directory``, for sandboxes. Yield its root's descriptor.

        Raises :class:`EngineError` if the supervisor is gone. Raises :class:`InfrastructureError` if the file system
        cannot be mounted, or if this process has too many open files.
        """
        with descriptor_errors():
            reached(FaultPoint.SUPERVISOR_REQUEST)
            channel, remote = channel_pair()
            with remote:
                payload = write_request({BOUNDED: str(directory), "size": size}, b"")
                try:
                    self._send_start((remote.fileno(), payload))
                finally:
                    os.close(payload)
        with channel:
            channel.settimeout(_READY_SECONDS)
            descriptor = _descriptor(channel, directory)
            try:
                yield descriptor
            finally:
                with suppress(OSError):
                    channel.shutdown(socket.SHUT_WR)
                    channel.recv(1)  # the end of the channel means that the file system is unmounted
                os.close(descriptor)  # this frees the memory

    def close(self) -> None:
        """Stop the supervisor and all its sandboxes. Idempotent. When this returns, no sandbox is running.

        If the supervisor has to be killed, the kernel kills everything in its pid namespace with it.
        """
        self._child.close(_END_SECONDS)

    def _send_start(self, descriptors: Sequence[int]) -> None:
        try:
            with self._sending:
                send(self._child.channel, _START, descriptors)
        except OSError as error:
            raise gone() from error


class ProcessHandle:
    """The driver's handle of a container, or of a command in a container. Thread-safe. Use ``fileno`` only to poll.

    For a command, ``within`` is the handle of its container. ``descriptor`` is the open directory with the container's
    changes. It is -1 until the supervisor's report arrives, and stays -1 if the report has no such directory.
    """

    def __init__(self, channel: socket.socket, within: ProcessHandle | None = None) -> None:
        self._channel = channel
        self._within = within
        weakref.finalize(self, channel.close)  # only once this object is unused: another thread may poll it
        self._reading = threading.Lock()
        self._report: ProcessReport | None = None
        self._lost = False
        self._listeners: list[socket.socket] | None = None
        self.descriptor = -1

    def fileno(self) -> int:
        """Return the channel's descriptor. It becomes readable when a report arrives, and hangs up after the last."""
        return self._channel.fileno()

    def is_over(self) -> bool:
        """Whether the exit of the process was reported, or will never be reported because the supervisor is gone."""
        with self._reading:
            if self._report is None and not self._lost:
                self._read()
            return self._report is not None or self._lost

    def report(self, timeout: float) -> ProcessReport:
        """Wait until the process exits, and return the supervisor's report.

        Raises :class:`EngineError` if the supervisor is gone, or reports nothing within ``timeout`` seconds.
        """
        deadline = time.monotonic() + timeout
        while not self.is_over():
            self._await_readable(deadline)
        if self._report is None:
            raise gone()
        return self._report

    def listeners(self, timeout: float) -> list[socket.socket]:
        """Wait for the listening sockets of the forwarded ports. Return ``[]`` if the process ends first.

        Raises :class:`EngineError` if the supervisor reports nothing within ``timeout`` seconds, and
        :class:`InfrastructureError` if this process has too many open files.
        """
        deadline = time.monotonic() + timeout
        with self._reading:
            while self._listeners is None and self._report is None and not self._lost:
                self._await_readable(deadline)
                self._read()
            listeners, self._listeners = self._listeners or [], None
        return listeners

    def await_end(self, timeout: float) -> None:
        """Wait up to ``timeout`` seconds for the process to exit. If the supervisor is gone, the process is too."""
        with suppress(EngineError):
            self.report(timeout)

    @property
    def is_command(self) -> bool:
        """Whether the process is a command in an existing container."""
        return self._within is not None

    def container_exited(self, timeout: float) -> bool:
        """Whether the container of this command has exited too, or exits within ``timeout`` seconds.

        ``False`` if the container never started, or if the machine, and not a process in the container, made it exit
        (``ProcessReport.lost``).
        """
        if self._within is None:
            return False
        try:
            report = self._within.report(timeout)
        except EngineError:  # it is still running, or its state is unknown
            return False
        return report.started and not report.lost

    def kill(self) -> None:
        """Ask the supervisor to kill the whole sandbox. Do not wait for it."""
        with suppress(OSError):
            send(self._channel, pack({KILL: True}))

    def limit(self, seconds: float) -> None:
        """Set the time limit of the process to ``seconds`` from now."""
        with suppress(OSError):
            send(self._channel, pack({LIMIT: seconds}))

    def hang_up(self) -> None:
        """Close the channel. If the process is still running, its whole sandbox is killed. Pollers see a hang-up."""
        with suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)

    def release_changes(self) -> None:
        """Close the directory with the container's changes, and make ``descriptor`` refer to the channel instead.

        So the number of the descriptor is not reused, and a thread that still reads from it cannot read another file.
        """
        with self._reading:
            if self._report is None and not self._lost:
                self._read()
            if self.descriptor >= 0:
                os.dup2(self._channel.fileno(), self.descriptor, inheritable=False)

    def _await_readable(self, deadline: float) -> None:
        poll = select.poll()
        poll.register(self, select.POLLIN)
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise EngineError(
                "the supervisor did not report on a sandbox in time",
                hint="check whether this machine is overloaded, then continue with --resume",
            )

    def _read(self) -> None:
        try:
            # A report without its descriptors is still useful, and code that needs a descriptor notices the loss.
            received = receive(self._channel, REPORT_DESCRIPTORS, may_lose_descriptors=True)
        except BlockingIOError:
            return
        except (OSError, FrameError):
            received = None
        if received is None:
            self._lost = True
            return
        body, descriptors = received
        if FORWARDED_PORTS in body:
            self._listeners = _sockets(descriptors, body[FORWARDED_PORTS])
            return
        self._report = ProcessReport(**body)
        if descriptors:
            self.descriptor = descriptors[0]
            # Closed only when this object is unused, because another thread may be reading from the descriptor.
            weakref.finalize(self, os.close, self.descriptor)


@contextmanager
def descriptor_errors() -> Iterator[None]:
    """Turn each ``OSError``, such as too many open files, into :class:`InfrastructureError` with a hint."""
    try:
        yield
    except OSError as error:
        raise InfrastructureError(
            f"this process cannot start another sandbox: {error}",
            hint="raise the limit on open files (ulimit -n), or run fewer tasks at once (--workers)",
        ) from error


def gone() -> EngineError:
    """Return the error to raise if the supervisor is gone."""
    return EngineError(
        "the supervisor of the sandboxes exited unexpectedly, and all sandboxes ended with it",
        code="sandbox-supervisor-gone",
        hint="check what killed it (perhaps the kernel, for lack of memory), then continue with --resume",
    )


def _unshare() -> list[str]:
    program = shutil.which("unshare")
    if not program:
        raise _unavailable("the program 'unshare' is not installed")
    return [program, *_user_namespace(), *_NAMESPACES]


def _user_namespace() -> list[str]:
    """Return the options of ``unshare`` for a user namespace, with subordinate ids if possible. Empty for root."""
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
        f"cannot start daemonless sandboxes on this machine: {why}",
        code="sandbox-unavailable",
        hint="run 'securebench doctor' to see what is missing, such as user namespaces for ordinary users",
    )


def _descriptor(channel: socket.socket, directory: Path) -> int:
    """Receive the descriptor of the file system mounted at ``directory``. Raises :class:`InfrastructureError`."""
    try:
        frame = receive(channel, 1)
    except (OSError, FrameError):
        frame = None
    if frame is None:
        raise gone()
    if not frame.descriptors:
        raise InfrastructureError(f"cannot limit the size of {directory}: {frame.body[BOUNDED]}")
    return frame.descriptors[0]


def _sockets(descriptors: list[int], expected: int) -> list[socket.socket]:
    listeners = [socket.socket(fileno=descriptor) for descriptor in descriptors]
    with descriptor_errors():
        if len(listeners) < expected:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    return listeners
