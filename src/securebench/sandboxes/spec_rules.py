"""Values that all drivers derive from a :class:`SandboxSpec` in the same way, and checks that all drivers share.

Constants come first, then the rules for each part of a spec: arguments and variables, capabilities, mounts, forwarded
ports, and collected changes.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from securebench.errors import ConfigError, EgressError, InfrastructureError, MaterializationError
from securebench.fs.safe_open import OPEN_DIRECTORY
from securebench.sandboxes.base import MIB, Mount

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable, Mapping, Sequence

    from securebench.sandboxes.base import ForwardedPort, SandboxSpec

HOSTNAME: Final = "sandbox"
"""The host name of every sandbox."""

OOM_SCORE: Final = 500
"""The ``oom_score_adj`` of a sandbox: if memory runs out, the kernel kills a sandbox rather than SecureBench.

Raising the value needs no privilege. A process in a sandbox can lower its value to that of SecureBench, not further.
"""

IDLE_COMMAND: Final = ("/bin/cat",)
"""The main process of a persistent sandbox. It exits when its stdin is closed, as happens if SecureBench is killed."""

SHARED_LIMITS: Final = {"MSGQUEUE": MIB // 8, "SIGPENDING": 4096, "NICE": 0, "RTPRIO": 0}
"""Limits that protect other sandboxes and the host.

``MSGQUEUE`` limits the bytes in POSIX message queues. Such queues and queued signals also count against the limits of
the user who starts sandboxes. ``NICE`` and ``RTPRIO`` limit how far priorities can be raised. Without these limits,
sandboxes inherit the tester's right to raise priorities.
"""

SHM_SIZE = 64 * MIB
"""The size of ``/dev/shm`` in bytes. Files in it count as memory."""

NAME_FILES = tuple(Path(__file__).resolve().parent / "etc" / name for name in ("hosts", "resolv.conf"))
"""Files of this package that are mounted in ``/etc`` of a sandbox without a network."""

KERNEL_TREES = ("/proc", "/sys", "/dev")

MAX_FORWARDED_PORTS: Final = 4
"""The maximum number of forwarded ports of one sandbox."""

RUNSC: Final = "runsc"
"""The name of gVisor's runtime. Processes run on the sentry, gVisor's sandboxed kernel in user space."""

SENTRY_THREADS: Final = 96
"""The number by which a sandbox's process limit is raised, because the sentry's threads count towards it.

On machines with a few cores, the sentry was observed to use fewer threads than this."""

_PORTS: Final = range(1, 1 << 16)

_DOCKER_DEFAULTS: Final = frozenset(
    {
        *("CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_MKNOD"),
        *("CAP_NET_BIND_SERVICE", "CAP_NET_RAW", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID"),
        "CAP_SYS_CHROOT",
    }
)
"""The default capabilities of a Docker container."""


def exact_argv(argv: Iterable[str]) -> list[str]:
    """Return ``argv`` as a list. Raises :class:`ConfigError` (``command-not-text``) for NUL or invalid Unicode."""
    return [_exact_text(argument) for argument in argv]


def exact_environment(environment: Mapping[str, str]) -> list[str]:
    """Return sorted ``NAME=value`` entries. Raises :class:`ConfigError` (``command-not-text``) for invalid ones."""
    for name in environment:
        if not name or "=" in name:
            raise ConfigError(f"{name!r} cannot be the name of an environment variable", code="command-not-text")
    return [_exact_text(f"{name}={environment[name]}") for name in sorted(environment)]


def process_environment(spec: SandboxSpec, of_command: Mapping[str, str]) -> dict[str, str]:
    """Return the complete environment of a process of ``spec``. ``of_command`` are the variables of its command.

    ``HOME`` is always included, because container runtimes add it from the image's user list if it is missing.
    """
    inherited = spec.image.environment if spec.inherit_image_environment else {}
    return {"HOME": "/", **inherited, **spec.environment, **of_command}


def _exact_text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigError(
            f"{text!r} is not valid Unicode: it cannot be an argument or variable", code="command-not-text"
        ) from None
    if "\0" in text:
        raise ConfigError(f"{text!r} contains a NUL: it cannot be an argument or variable", code="command-not-text")
    return text


def granted_capabilities(spec: SandboxSpec) -> list[str]:
    """Return the sorted capabilities of root in a sandbox of ``spec``. Other users have none.

    Raises :class:`ConfigError` (``sandbox-unsupported``) if ``ALL`` is added: capabilities must be added by name.
    """
    added = {_full_name(name) for name in spec.cap_add}
    if "CAP_ALL" in added:
        raise ConfigError(
            "'cap_add' of a sandbox contains 'ALL'",
            code="sandbox-unsupported",
            hint="list the capabilities that the sandbox needs in 'cap_add'",
        )
    dropped = {_full_name(name) for name in spec.cap_drop}
    kept = frozenset[str]() if "CAP_ALL" in dropped else _DOCKER_DEFAULTS - dropped
    return sorted(kept | added)


def _full_name(name: str) -> str:
    return "CAP_" + name.upper().removeprefix("CAP_")


def checked_binds(spec: SandboxSpec) -> list[Mount]:
    """Check all mounts of ``spec``, and return the result of :func:`binds`. Raises the errors of :func:`check_mount`.

    Call this right before the sandbox is created.
    """
    for mount in spec.mounts:
        check_mount(mount)
    return binds(spec)


def binds(spec: SandboxSpec) -> list[Mount]:
    """Return the mounts of ``spec`` and, without a network, the files for name resolution.

    With these files, ``localhost`` resolves, and no other name is looked up.
    """
    taken = {mount.target for mount in spec.mounts}
    files = [Mount(file, f"/etc/{file.name}") for file in NAME_FILES]
    return [*spec.mounts, *(file for file in files if spec.network == "none" and file.target not in taken)]


def memory_limit(spec: SandboxSpec) -> int:
    """Return the memory limit of a sandbox of ``spec`` in bytes. Files in bounded directories count as memory."""
    has_workspace = any(mount.bounded and not mount.read_only for mount in spec.mounts)
    return spec.limits.memory + (spec.limits.workspace if has_workspace else 0)


def empty_volumes(spec: SandboxSpec) -> list[str]:
    """Return the image's volumes that get an empty tmpfs: those without another mount, if the root is read-only."""
    taken = {mount.target for mount in binds(spec)} | set(spec.tmpfs)
    return [path for path in spec.image.volumes if spec.read_only and path not in taken]


def check_mount(mount: Mount) -> None:
    """Raise :class:`MaterializationError` (``mount-unsafe``) unless the source and target of ``mount`` are safe.

    The source must be a regular file or directory without a symbolic link in its path, because engines follow links on
    the host. A bounded source is not checked here. The target must be a plain absolute path outside the kernel's file
    systems. Call this right before creating the sandbox, and only for paths that no other user can change.
    """
    if not mount.bounded:
        check_source(mount)
    target = PurePosixPath(mount.target)
    plain = str(target) == mount.target and target.is_absolute() and ".." not in target.parts
    if not plain or target.name == "" or any(target.is_relative_to(tree) for tree in KERNEL_TREES):
        fault = "is not a plain absolute path below /, or is in /proc, /sys or /dev"
        raise _unsafe(mount, f"has the target {mount.target!r}, which {fault}")


def check_source(mount: Mount) -> None:
    """Raise :class:`MaterializationError` (``mount-unsafe``) unless the source is a regular file or a directory.

    Its path must be absolute, and no component may be ``..`` or a symbolic link.
    """
    source = mount.source
    if not source.is_absolute() or ".." in source.parts:
        raise _unsafe(mount, "must have an absolute source path without '..'")
    for path in (*reversed(source.parents), source):
        mode = _mode(mount, path)
        if stat.S_ISLNK(mode):
            raise _unsafe(mount, f"passes through the symbolic link {path}")
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise _unsafe(mount, "is neither a regular file nor a directory")


def _mode(mount: Mount, path: Path) -> int:
    try:
        return path.lstat().st_mode
    except OSError as error:
        raise _unsafe(mount, f"cannot be inspected: {error.strerror}") from error


def _unsafe(mount: Mount, why: str) -> MaterializationError:
    return MaterializationError(
        f"the mount of {mount.source} {why}",
        code="mount-unsafe",
        hint="mount a regular file or directory by its real path (Path.resolve()) at a plain absolute path",
    )


def check_forwarded_ports(spec: SandboxSpec, runtime: str = "", *, possible: bool = True) -> None:
    """Raise :class:`ConfigError` (``sandbox-unsupported``) unless a sandbox can have the forwarded ports of ``spec``.

    Raises :class:`EgressError` (``egress-unavailable``) if they are not ``possible`` with ``runtime``.
    """
    ports = [forwarded_port.port for forwarded_port in spec.forwarded_ports]
    if ports and spec.network != "none":
        raise _ports_unsupported(f"forwarded ports together with the network {spec.network!r}")
    if len(ports) > MAX_FORWARDED_PORTS or len(set(ports)) < len(ports) or any(port not in _PORTS for port in ports):
        raise _ports_unsupported(f"the forwarded ports {ports}")
    if ports and not possible:
        raise no_forwarded_ports(f"{runtime} does not support forwarded ports")


def no_forwarded_ports(why: str) -> EgressError:
    """Return the error for a driver or runtime whose sandboxes cannot have forwarded ports."""
    return EgressError(
        f"sandboxes cannot have egress: {why}",
        code="egress-unavailable",
        hint="use the oci driver with crun, or the docker driver with its default runtime (remove 'sandbox.runtime')",
    )


def serve_forwarded_ports(forwarded_ports: Sequence[ForwardedPort], listeners: Sequence[socket.socket]) -> None:
    """Pass each listener to ``serve`` of its forwarded port. On failure, close all listeners and raise the error."""
    try:
        for forwarded_port, listener in zip(forwarded_ports, listeners, strict=True):
            forwarded_port.serve(listener)
    except BaseException:
        for listener in listeners:
            listener.close()
        raise


def _ports_unsupported(what: str) -> ConfigError:
    return ConfigError(
        f"{what} are not supported",
        code="sandbox-unsupported",
        hint=f"use network 'none' and at most {MAX_FORWARDED_PORTS} different port numbers from 1 to 65535",
    )


def check_collect(spec: SandboxSpec, *, persistent: bool) -> None:
    """Raise :class:`ConfigError` (``collect-unsupported``) unless changes in ``spec.collect`` can be collected.

    Nothing may be mounted at, above or below this directory, because files on a mount are not in the container's layer.
    An exception is ``/``, which image builds collect: the result leaves mounts out.
    """
    if spec.collect is None:
        return
    path = PurePosixPath(spec.collect)
    if str(path) != spec.collect or not path.is_absolute() or ".." in path.parts:
        raise _cannot_collect(spec.collect, "it is not a plain absolute path")
    if persistent or spec.read_only:
        raise _cannot_collect(spec.collect, "this needs an ephemeral sandbox with a writable root")
    if not path.name:
        return
    mounted = (*KERNEL_TREES, *spec.tmpfs, *(mount.target for mount in binds(spec)))
    if near := [at for at in mounted if path.is_relative_to(at) or PurePosixPath(at).is_relative_to(path)]:
        raise _cannot_collect(spec.collect, f"there is a mount at {near[0]}")


def require_directory(tree: Path, path: str) -> None:
    """Raise :class:`ConfigError` (``collect-unsupported``) unless ``path`` is a directory of the image ``tree``.

    No component may be a link, because changes behind a link are in another directory and would be missed.
    """
    descriptor = os.open(tree, OPEN_DIRECTORY)
    try:
        for part in PurePosixPath(path).parts[1:]:
            below = os.open(part, OPEN_DIRECTORY, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
    except OSError as error:
        problem = f"in the image, it is not a directory, or its path passes through a link ({error.strerror})"
        raise _cannot_collect(path, problem) from None
    finally:
        os.close(descriptor)


def nothing_to_collect() -> InfrastructureError:
    """Return the error for collecting before the command has exited, or from a sandbox without ``collect``."""
    return InfrastructureError("nothing to collect: no command has exited, or this sandbox does not collect changes")


def one_command_only() -> InfrastructureError:
    """Return the error for a second command, whose changes could not be distinguished from those of the first."""
    return InfrastructureError("a sandbox that collects changes can run only one command")


def _cannot_collect(path: str, why: str) -> ConfigError:
    return ConfigError(
        f"cannot collect changes in {path}: {why}",
        code="collect-unsupported",
        hint="use a directory of the image, such as its repository, in which nothing is mounted",
    )
