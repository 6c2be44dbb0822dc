"""The one place where a :class:`SandboxSpec` becomes the JSON that a Docker Engine creates a container from.

A golden test holds the whole document. What is not obvious in it:

* ``Entrypoint: [""]`` clears the image's entrypoint, which would swallow the command and its exit code.
* A bare ``NAME`` in ``Env`` removes a variable of the image, or one that the engine would add.
* ``NetworkDisabled`` leaves the container alone in a fresh network namespace that holds only loopback, like network
  ``none``, but without the engine's network set-up, which would take 40 % of the whole cycle. The engine then writes
  no hosts file either, so ours are mounted: ``localhost`` resolves, and no name is ever asked for outside.
* ``/tmp`` is mounted exec: agents build and run there, and the workspace beside it is exec too. It counts as memory.
* Seccomp profile, masked paths and read-only paths are the engine's defaults, kept by not being named.
* A volume that the image declares cannot be taken back, only mounted: read-only like the root that it belongs to.
"""

from __future__ import annotations

import stat
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from securebench.errors import ConfigError, MaterializationError
from securebench.sandboxes.base import MIB

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from securebench.sandboxes.base import Command, Limits, Mount, SandboxSpec

HOSTNAME = "sandbox"

IDLE_COMMAND = ("/bin/cat",)
"""What a persistent container runs: it waits on its stdin, which ends when the host's process does, even if killed."""

SHM_SIZE = 64 * MIB

_ETC = Path(__file__).resolve().parent / "etc"
_ADDED_BY_ENGINE = ("HOSTNAME", "PATH")
_KERNEL_TREES = ("/proc", "/sys", "/dev")


def compile_container(spec: SandboxSpec, command: Command | None, labels: Mapping[str, str]) -> dict[str, Any]:
    """Return the body of a container's create request. ``command`` is ``None`` for a persistent sandbox.

    Raises :class:`ConfigError` (``command-not-text``) for an argument or variable that cannot be handed over exactly,
    and :class:`MaterializationError` (``mount-unsafe``) for a mount whose source is a link or no plain file.
    """
    persistent = command is None
    return {
        "Image": spec.image.id,
        "Entrypoint": [""],
        "Cmd": checked_argv(IDLE_COMMAND if command is None else command.argv),
        "Env": _environment(spec, {} if command is None else command.environment),
        "WorkingDir": spec.workdir if command is None or command.workdir is None else command.workdir,
        "User": "{}:{}".format(*spec.user),
        "Hostname": HOSTNAME,
        "Domainname": "",
        "AttachStdin": True,
        "AttachStdout": not persistent,
        "AttachStderr": not persistent,
        "OpenStdin": True,
        "StdinOnce": True,
        "Tty": False,
        "NetworkDisabled": spec.network == "none",
        "Healthcheck": {"Test": ["NONE"]},
        "Labels": {**spec.labels, **labels},
        "HostConfig": _host_config(spec),
    }


def checked_argv(argv: Iterable[str]) -> list[str]:
    """Return ``argv`` as a list. Raises :class:`ConfigError` if the engine's JSON would change it."""
    return [_exact(argument) for argument in argv]


def environment_list(environment: Mapping[str, str]) -> list[str]:
    """Return ``NAME=value`` entries, sorted. Raises :class:`ConfigError` for what no environment can hold."""
    for name in environment:
        if not name or "=" in name:
            raise ConfigError(f"{name!r} cannot be the name of a variable", code="command-not-text")
    return [_exact(f"{name}={environment[name]}") for name in sorted(environment)]


def _environment(spec: SandboxSpec, of_command: Mapping[str, str]) -> list[str]:
    inherited = spec.image.environment if spec.inherit_image_environment else {}
    # The container runtime adds HOME from the image's own /etc/passwd unless there is one.
    complete = {"HOME": "/", **inherited, **spec.environment, **of_command}
    removed = sorted({*spec.image.environment, *_ADDED_BY_ENGINE} - set(complete))
    return environment_list(complete) + removed


def _host_config(spec: SandboxSpec) -> dict[str, Any]:
    limits = spec.limits
    return {
        "NetworkMode": spec.network,
        "Dns": ["127.0.0.1"],
        "DnsSearch": ["."],
        "IpcMode": "private",
        "CgroupnsMode": "private",
        "Privileged": False,
        "CapDrop": list(spec.cap_drop),
        "CapAdd": list(spec.cap_add),
        "SecurityOpt": list(spec.security_opt),
        "ReadonlyRootfs": spec.read_only,
        "Tmpfs": dict.fromkeys(spec.tmpfs, f"rw,nosuid,nodev,exec,mode=1777,size={limits.tmpfs}"),
        "ShmSize": SHM_SIZE,
        "Mounts": _mounts(spec),
        "Init": True,
        "AutoRemove": False,
        "RestartPolicy": {"Name": "no"},
        "LogConfig": {"Type": "none", "Config": {}},
        **_resources(limits),
    }


def _resources(limits: Limits) -> dict[str, Any]:
    ulimits = {"core": 0, "fsize": limits.file_size, "nofile": limits.open_files}
    return {
        "Memory": limits.memory,
        "MemorySwap": limits.memory,
        "PidsLimit": limits.pids,
        "NanoCpus": round(limits.cpus * 1_000_000_000),
        "Ulimits": [{"Name": name, "Soft": value, "Hard": value} for name, value in ulimits.items()],
    }


def _mounts(spec: SandboxSpec) -> list[dict[str, Any]]:
    binds = [_bind(str(_checked_source(mount)), _checked_target(mount), mount.read_only) for mount in spec.mounts]
    taken = {bind["Target"] for bind in binds} | set(spec.tmpfs)
    if spec.network == "none":
        binds += [
            _bind(str(_ETC / name), f"/etc/{name}", read_only=True)
            for name in ("hosts", "resolv.conf")
            if f"/etc/{name}" not in taken
        ]
    volumes = [
        {"Type": "volume", "Target": path, "ReadOnly": spec.read_only}
        for path in spec.image.volumes
        if path not in taken
    ]
    return binds + volumes


def _bind(source: str, target: str, read_only: bool) -> dict[str, Any]:  # noqa: FBT001 - a field of the document
    options = {"Propagation": "rprivate", "NonRecursive": True}
    return {"Type": "bind", "Source": source, "Target": target, "ReadOnly": read_only, "BindOptions": options}


def _checked_source(mount: Mount) -> Path:
    source = mount.source
    if not source.is_absolute() or ".." in source.parts:
        raise _unsafe(mount, "is not an absolute path without '..'")
    for path in (*reversed(source.parents), source):
        try:
            mode = path.lstat().st_mode
        except OSError as error:
            raise _unsafe(mount, f"cannot be looked at: {error.strerror}") from error
        if stat.S_ISLNK(mode):
            raise _unsafe(mount, f"passes through the symbolic link {path}")
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise _unsafe(mount, "is neither a regular file nor a directory")
    return source


def _checked_target(mount: Mount) -> str:
    target = PurePosixPath(mount.target)
    kernel = any(target.is_relative_to(tree) for tree in _KERNEL_TREES)
    if str(target) != mount.target or not target.is_absolute() or ".." in target.parts or kernel or target.name == "":
        raise _unsafe(mount, f"goes to {mount.target!r}, where nothing may be mounted")
    return mount.target


def _unsafe(mount: Mount, why: str) -> MaterializationError:
    return MaterializationError(
        f"the mount of {mount.source} {why}",
        code="mount-unsafe",
        hint="mount a regular file or directory by its real path (Path.resolve()) at a plain absolute path",
    )


def _exact(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{text!r} is not valid text, so it cannot be passed on", code="command-not-text") from None
    if "\0" in text:
        raise ConfigError(f"{text!r} holds a NUL byte, which no argument can", code="command-not-text")
    return text
