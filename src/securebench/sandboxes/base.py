"""The interface of sandboxes: the operations of every driver, and its guarantees.

A :class:`SandboxDriver` creates sandboxes from a :class:`SandboxSpec`. A :class:`Sandbox` runs commands. The
conformance suite, ``securebench.testing.conformance``, tests whether a driver gives the guarantees below.

Guarantees of every driver:

* a process has the environment of its spec and command, and no other variable except ``HOME``;
* a time limit stops the whole sandbox with all its processes; output captured until then is kept;
* captured output is bounded, however much the process writes;
* a closed sandbox leaves nothing behind, and the next run removes what a killed run left.

A driver may lack a :class:`DriverFeature`, and then says so in its :class:`DriverInfo`. Specs have mounts even if the
driver lacks host mounts: :func:`~securebench.sandboxes.copying.adapted` then copies them to and from volumes.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, ClassVar, Self, TypeAlias

from securebench.errors import ConfigError, InfrastructureError, PathPolicyError
from securebench.limits import MIB as MIB  # noqa: PLC0414 - part of this contract; tester_config may import limits
from securebench.limits import Limits as Limits  # noqa: PLC0414 - as above
from securebench.plugins import Extension
from securebench.sandboxes.enforcement import DriverFeature as DriverFeature  # noqa: PLC0414 - part of this contract
from securebench.sandboxes.enforcement import DriverInfo as DriverInfo  # noqa: PLC0414, TC001 - part of this contract

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from securebench.images.model import ResolvedImage
    from securebench.images.store.leases import TreeLease
    from securebench.sandboxes.collected import Collected
    from securebench.strict_input.models import WireModel

TIMEOUT_EXIT_CODE = 124
"""The exit code of a command that exceeded its time limit. coreutils' ``timeout`` uses the same one."""

ROOT_USER = (0, 0)
"""Root inside a sandbox (uid, gid)."""

UNPRIVILEGED_USER = (65534, 65534)
"""``nobody``, which exists in every common image and owns no files."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or directory of the host, at an absolute POSIX path of the sandbox."""

    source: Path
    target: str
    read_only: bool = True
    bounded: bool = False
    """Whether the source is in a file system that :meth:`SandboxDriver.bounded` provides.

    Such a source is not checked, because the directory may look empty to this process.
    """


@dataclass(frozen=True, slots=True)
class Volume:
    """A copy of a file or directory, at an absolute POSIX path of one sandbox, for drivers without host mounts.

    ``archive`` returns the content as the pieces of a tar archive. Its names begin with the last component of
    ``target``; owners and modes are those inside the sandbox. ``read_only`` applies to the processes in the sandbox.
    """

    target: str
    archive: Callable[[], Iterator[bytes]]
    read_only: bool = True


@dataclass(frozen=True, slots=True)
class ForwardedPort:
    """A TCP port on the loopback interface of a sandbox, 127.0.0.1, that is served from outside.

    The network namespace of the sandbox contains only loopback. Connections to this port reach the owner of the
    listening socket and nothing else.

    A socket listens on the port before the first process of the image starts. ``serve`` is called with this socket:
    for each command of an ephemeral sandbox before ``open`` returns, and for a persistent sandbox once, before
    ``create`` returns. ``serve`` must return at once. From then on, the socket belongs to the code that provides
    ``serve``, which has to close the socket later. The end of the sandbox ends only the connections. The socket stays
    open, but gets no more connections.
    """

    port: int
    serve: Callable[[socket.socket], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSpec:
    """The complete configuration of one sandbox. Each driver compiles it to a format of its own.

    The defaults are the strictest settings. A harness or verifier has to set each weaker value explicitly.

    * ``environment`` is complete: unless ``inherit_image_environment`` is set, the image's own variables are removed.
    * ``user`` is (uid, gid).
    * ``network`` is ``none`` or the name of one of the driver's networks.
    * ``forwarded_ports`` are ports on the loopback interface that are served from outside. They require network
      ``none``.
    * ``collect`` is a directory of the image. An ephemeral sandbox keeps the changes that its one command made there.
      This requires a writable root and, unless the directory is ``/``, no mount at, above or below it.
    * ``volumes`` replace ``mounts`` for a driver without host mounts. Later volumes may be inside earlier ones. All are
      filled before the first process starts.
    """

    image: ResolvedImage
    network: str = "none"
    cap_drop: tuple[str, ...] = ("ALL",)
    cap_add: tuple[str, ...] = ()
    read_only: bool = True
    tmpfs: tuple[str, ...] = ("/tmp",)  # noqa: S108 - a path inside the sandbox
    security_opt: tuple[str, ...] = ("no-new-privileges:true",)
    limits: Limits = field(default_factory=Limits)
    mounts: tuple[Mount, ...] = ()
    volumes: tuple[Volume, ...] = ()
    environment: Mapping[str, str] = field(default_factory=lambda: dict(BASE_ENVIRONMENT))
    inherit_image_environment: bool = False
    workdir: str = "/"
    user: tuple[int, int] = UNPRIVILEGED_USER
    forwarded_ports: tuple[ForwardedPort, ...] = ()
    collect: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


BASE_ENVIRONMENT: Mapping[str, str] = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/tmp",  # noqa: S108 - a path inside the sandbox
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
}
"""The default environment of a sandbox. A spec may have a different one, and a command may add variables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command: an argv, never a shell string. At most ``capture`` bytes of each output stream are kept.

    ``stdin`` is sent to it while it runs. ``Sandbox.run`` then closes its stdin; callers of ``Sandbox.open`` have to do
    that themselves. With ``waits``, the command does nothing until it receives input, so a driver may start it early.
    """

    argv: tuple[str, ...]
    timeout_seconds: float
    stdin: bytes = b""
    environment: Mapping[str, str] = field(default_factory=dict)
    workdir: str | None = None
    capture: int = MIB
    waits: bool = False


class Stream(StrEnum):
    """An output stream of a process."""

    STDOUT = "stdout"
    STDERR = "stderr"


Chunk: TypeAlias = tuple[Stream, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitState:
    """How a process ended. If it was killed at a limit, a flag says which limit."""

    exit_code: int
    timed_out: bool = False
    out_of_memory: bool = False
    output_limit_exceeded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """How a command ended, how long it took, and its output: at most ``Command.capture`` bytes of each stream."""

    exit_code: int
    stdout: bytes = b""
    stderr: bytes = b""
    stdout_truncated: bool = False
    stderr_truncated: bool = False
    timed_out: bool = False
    out_of_memory: bool = False
    output_limit_exceeded: bool = False
    duration_seconds: float = 0.0


class SandboxProcess(ABC):
    """A running command. One thread reads its output; any thread may call ``kill``."""

    @abstractmethod
    def send(self, data: bytes) -> None:
        """Write all of ``data`` to the command's stdin. Raises ``BrokenPipeError`` if its stdin is closed."""

    @abstractmethod
    def close_stdin(self) -> None:
        """Close the command's stdin."""

    @abstractmethod
    def receive(self, timeout: float | None = None) -> Chunk | None:
        """Return the next output, or ``None`` after the last. Raises ``TimeoutError`` after ``timeout`` seconds."""

    @abstractmethod
    def wait(self) -> ExitState:
        """Wait until the command exits or is killed, and return how it ended. Raises :class:`InfrastructureError`."""

    @abstractmethod
    def kill(self) -> None:
        """Kill the command and all other processes in its container immediately."""


class Sandbox(ABC):
    """One sandbox. Ephemeral: each command gets its own container. Persistent: all commands share one container.

    A context manager. Closing kills running processes, leaves nothing behind and is idempotent.
    """

    @abstractmethod
    def open(self, command: Command) -> SandboxProcess:
        """Start ``command`` and return the running process. Raises :class:`InfrastructureError`."""

    def collected(self) -> Collected:
        """Return the changes that the sandbox's only command made in the spec's ``collect`` directory.

        Call this after the command has exited: no process of the sandbox is running then. The changes are not checked:
        treat them as hostile. They can be read until the sandbox is closed.

        Raises :class:`InfrastructureError`, for example on a driver without :attr:`DriverFeature.IMAGE_TREE`. Raises
        :class:`DirectoryReplacedError`, which counts as a failure of the candidate, if the directory or one of its
        parents is no longer a directory.
        """
        from securebench.sandboxes.spec_rules import nothing_to_collect

        raise nothing_to_collect()

    def copy_in(self, volume: Volume) -> None:
        """Replace the content of ``volume``, a volume of the spec, by the current content of its ``archive``.

        Called between commands, only for a volume that contains no other volume, and only on drivers without host
        mounts. Raises :class:`InfrastructureError`.
        """
        raise InfrastructureError(f"the sandbox has no volume at {volume.target}")

    def copy_out(self, volume: Volume) -> Iterator[bytes]:
        """Return ``volume`` as the command of an ephemeral sandbox left it, as pieces of a tar archive.

        The driver makes the archive without any program in the sandbox. Call this before the sandbox is closed, and
        only on drivers without host mounts. Raises :class:`InfrastructureError`, also while the pieces are read.
        """
        raise InfrastructureError(f"the sandbox has no volume at {volume.target}")

    def refresh(self, mount: Mount) -> None:  # noqa: B027 - nothing to copy here
        """Update ``mount`` in the sandbox to the current content of its source. Raises the errors of :meth:`copy_in`.

        With host mounts, do nothing: the sandbox shares the directory with the host.
        """

    @abstractmethod
    def close(self) -> None:
        """Stop and remove the sandbox."""

    def run(
        self,
        command: Command,
        on_output: Callable[[Chunk], None] | None = None,
        reply: Callable[[Chunk], bytes | None] | None = None,
    ) -> CommandResult:
        """Run ``command`` until it exits and return its result. Raises :class:`InfrastructureError`.

        ``on_output`` is called with every chunk as it arrives, including output beyond the capture limit. With
        ``reply``, stdin stays open. ``reply`` is called with each chunk until it returns bytes: these are sent to the
        command, and stdin is closed.
        """
        started = time.monotonic()
        process = self.open(command)
        if reply is None:
            process.close_stdin()
        capture = {Stream.STDOUT: _Capture(command.capture), Stream.STDERR: _Capture(command.capture)}
        while (chunk := process.receive()) is not None:
            stream, data = chunk
            capture[stream].add(data)
            if on_output is not None:
                on_output(chunk)
            if reply is not None and (answer := reply(chunk)) is not None:
                with suppress(BrokenPipeError):  # stdin is closed: the caller judges the command by its output
                    process.send(answer)
                    process.close_stdin()
                reply = None
        state = process.wait()
        out, err = capture[Stream.STDOUT], capture[Stream.STDERR]
        return CommandResult(
            exit_code=state.exit_code,
            stdout=bytes(out.kept),
            stderr=bytes(err.kept),
            stdout_truncated=out.truncated,
            stderr_truncated=err.truncated,
            timed_out=state.timed_out,
            out_of_memory=state.out_of_memory,
            output_limit_exceeded=state.output_limit_exceeded,
            duration_seconds=time.monotonic() - started,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SandboxDriver(Extension, ABC):
    """Creates sandboxes. The threads of a run share one driver."""

    settings_model: ClassVar[type[WireModel] | None] = None
    """The model of ``sandbox.config``, or ``None`` if the driver has no settings."""

    @classmethod
    def from_settings(cls, settings: WireModel, run_id: str) -> Self:
        """Return a driver for the run ``run_id``.

        SecureBench creates the drivers of installed packages with this method. ``settings`` is an instance of
        ``settings_model``, and is ignored if ``settings_model`` is ``None``. A driver should override this method and
        label what it creates with ``run_id``, so that the remains of a killed run can be found.
        """
        del run_id
        return cls(settings) if cls.settings_model else cls()  # type: ignore[call-arg]

    @classmethod
    def open_for_run(
        cls, run_id: str, runtime: str | None, settings: WireModel | None, notify: Callable[[str], None]
    ) -> Self:
        """Return a driver that the user selected by name, with ``settings`` or its default settings.

        A driver that supports several runtimes overrides this. ``runtime`` is the name of the selected runtime, if any.
        ``notify`` receives messages that users should see about the driver on this machine. Raises
        :class:`ConfigError` (``runtime-unavailable``), and the errors of :meth:`from_settings`.
        """
        del notify
        if runtime:
            raise ConfigError("this driver does not support choosing a runtime", code="runtime-unavailable")
        from securebench.strict_input.models import WireModel

        return cls.from_settings(settings or (cls.settings_model or WireModel)(), run_id)

    @abstractmethod
    def info(self) -> DriverInfo:
        """Describe this driver. Raises :class:`EngineError` if its engine does not answer."""

    @abstractmethod
    def resolve_image(self, reference: str, on_progress: Callable[[str], None] | None = None) -> ResolvedImage:
        """Resolve ``reference`` to an image and pull it if it is missing. Raises :class:`ImageError`.

        A driver resolves each reference once: if a tag moves during a run, the run keeps the first image.
        """

    def image_tree(self, image: ResolvedImage) -> TreeLease:
        """Return a lease on the unpacked, read-only files of ``image`` on this host. The caller closes it.

        Raises :class:`ImageError` and :class:`DiskFullError`. A driver that does not override this method raises
        :class:`ConfigError` (``image-tree-unavailable``).
        """
        raise image_tree_unavailable(self.info(), f"the files of {image.reference}")

    def self_test(self, image: ResolvedImage, *, forwarded_ports: bool = False) -> None:
        """Check, from inside a sandbox of ``image``, that sandboxes on this machine are isolated.

        With ``forwarded_ports``, also check that a sandbox with a forwarded port can reach that port and nothing else.

        Raises :class:`EngineError` (``sandbox-not-isolated``) if the isolation does not work or cannot be checked; with
        ``forwarded_ports`` also :class:`EgressError` (``egress-unavailable``).
        """
        from securebench.sandboxes.self_test import require_isolation

        require_isolation(self, image, forwarded_ports=forwarded_ports)

    @property
    def bounds_directories(self) -> bool:
        """Whether this driver supports :meth:`bounded`."""
        return False

    def bounded(self, directory: Path, size: int) -> AbstractContextManager[Path]:
        """Return a context that provides an empty file system in memory for mounts of sandboxes.

        In the context, the existing ``directory`` of this host is the mount point of the file system. It has room for
        ``size`` bytes, and for one file per 4 KiB of ``size``, but always for at least 1,024 files. Set
        :attr:`Mount.bounded` for each mount of a directory in this file system. The context yields the path at which
        this process can access the files, because ``directory`` itself may look empty to this process. The files are
        gone when the context ends. Raises :class:`InfrastructureError`.
        """
        raise InfrastructureError(f"this driver cannot limit the size of {directory} (to {size} bytes)")

    @abstractmethod
    def create(self, spec: SandboxSpec, *, persistent: bool = False) -> Sandbox:
        """Create a sandbox. Raises :class:`InfrastructureError`.

        Raises :class:`ConfigError` for settings that this driver does not support, and :class:`EgressError`
        (``egress-unavailable``) for forwarded ports if this driver does not support them.
        """

    @abstractmethod
    def reap(self) -> int:
        """Remove what is left of runs that were killed. Return the number of removed items."""

    @abstractmethod
    def close(self) -> None:
        """Close all sandboxes and release everything that the driver holds, such as the connection to its engine."""

    def kill_all(self) -> None:
        """Kill and remove all sandboxes of this driver immediately and create no more, because the run is stopping.

        Idempotent, and may be called from any thread. Afterwards ``create`` and ``open`` raise :class:`EngineError`
        (``run-stopped``). The results of sandboxes that were killed this way are meaningless.
        """
        self.close()


def image_tree_unavailable(info: DriverInfo, what: str) -> ConfigError:
    """Return the error for ``what``, which needs :attr:`DriverFeature.IMAGE_TREE`, on a driver without it."""
    return ConfigError(
        f"the {info.name} driver does not unpack images on this host, but unpacking is needed for {what}",
        code="image-tree-unavailable",
        hint="use the oci or the docker driver",
    )


def workspace_user() -> tuple[int, int]:
    """Return (uid, gid) for a sandbox that writes to a host directory: the current user, or ``nobody`` if that is root.

    Root in a container without capabilities cannot write to an ordinary user's directory, and the user could not
    remove files that root creates. If the current user is root, the user ``nobody`` owns the directory.
    """
    uid, gid = os.getuid(), os.getgid()
    return UNPRIVILEGED_USER if uid == 0 else (uid, gid)


def resolve_sandbox_host_path(root: Path, path: str | PurePosixPath) -> Path:
    """Return the host path of ``path`` below ``root``. Raises :class:`PathPolicyError` if it leads out of ``root``.

    Rejected: absolute paths, ``..``, backslashes, NUL, and links that lead out of ``root``.
    """
    text = str(path)
    parts = PurePosixPath(text).parts
    if text.startswith("/") or "\\" in text or "\0" in text or ".." in parts:
        raise PathPolicyError(
            f"{text!r} is not a plain relative path",
            hint="use a POSIX path without '..', '\\' or a leading '/'",
        )
    base = root.resolve()
    resolved = base.joinpath(*parts).resolve()
    if not resolved.is_relative_to(base):
        raise PathPolicyError(f"{text!r} leads out of the sandbox root through a link")
    return base.joinpath(*parts)


class _Capture:
    """Keeps the first ``limit`` bytes that are added."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.kept = bytearray()
        self.truncated = False

    def add(self, data: bytes) -> None:
        room = self.limit - len(self.kept)
        self.kept += data[:room]
        self.truncated = self.truncated or len(data) > room
