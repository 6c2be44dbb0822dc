"""Compile a :class:`SandboxSpec` to the OCI configuration from which a runtime creates a sandbox.

It requests the same restrictions as the Docker driver's ``spec`` module, and those that Docker adds automatically. A
golden test compares the whole document, and another test compares the restrictions of both drivers. Notes on the less
obvious parts:

* All namespaces are new, including a user namespace, which Docker does not use by default. Kernel settings are
  therefore protected twice: by their owner (the host's root), and by Docker's lists of read-only and masked paths.
* A new network namespace has only loopback, and no hook or helper sets up anything in it. With forwarded ports, the
  supervisor has created and owns the network namespace, so nothing in the sandbox has any privilege over it. A process
  that does not own its network namespace cannot mount ``sysfs``, and runtimes would bind the ``sysfs`` of the host
  instead. So the supervisor mounts ``sysfs`` too, and the configuration binds that mount. A runtime that cannot enter a
  network namespace itself is started in the sandbox's network namespace and stays in it.
* Users other than root have capabilities only in the bounding set, as ``execve`` would leave them.
* Bind mounts are staged: their sources are mounts that already forbid set-id programs, devices and (for read-only
  mounts) writing. The options repeat these flags, because a user namespace cannot clear mount flags that it inherits.
* No cgroup file system is mounted, because nothing in a sandbox needs it. The driver sets limits in cgroups around the
  runtime. Without usable cgroups, resource limits are used instead. They limit the number of processes, which the
  kernel counts for each user namespace, and the data size of each process. The address space is not limited, because
  interpreters reserve far more of it than they use.
* ``/tmp`` counts as memory. It is mounted exec, like the workspace, because agents build and run programs there.
* The ``devpts`` mount names no group for terminals (``gid=``), because in a sandbox, only their owner needs access.
* ``oomScoreAdj`` is at least that of this process, and never low enough to protect a sandbox from the OOM killer.
* If SecureBench runs as root, an id ``c`` in a sandbox is ``SHIFT + c`` on the host. These shifted ids own the unpacked
  images and nothing else. But the uid and gid of ``spec.user``, if they are not 0, are the same on the host, so files
  that this user writes to a directory of the host have the expected owner. If such an id is itself in the range of the
  shifted ids, it is ``SHIFT + COUNT`` on the host.
* An ordinary user can map only their own id and their subordinate ids. ``spec.user``, whatever its id in the sandbox,
  has the user's own id on the host. Without subordinate ids, it is the only user in the sandbox.
"""

from __future__ import annotations

import base64
import resource
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NotRequired, TypeAlias, TypedDict

from securebench.errors import ConfigError, EngineError
from securebench.images.store.ids import COUNT, SHIFT
from securebench.sandboxes.oci.wire import tmpfs_bounds
from securebench.sandboxes.seccomp_profile import profile_of_gvisor
from securebench.sandboxes.spec_rules import (
    HOSTNAME,
    IDLE_COMMAND,
    OOM_SCORE,
    SHARED_LIMITS,
    SHM_SIZE,
    checked_binds,
    empty_volumes,
    exact_argv,
    exact_environment,
    granted_capabilities,
    process_environment,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.sandboxes.base import Command, Limits, SandboxSpec
    from securebench.sandboxes.oci.runtime import OciRuntime
    from securebench.sandboxes.oci.seccomp import Seccomp

OCI_VERSION: Final = "1.0.2"

INIT_TARGET: Final = "/dev/init"
"""The path at which a sandbox's init is mounted. ``/dev`` exists in every sandbox, and hides the image's ``/dev``."""

DEVICES_TARGET: Final = "/sys"
"""The mount point of ``sysfs``, which shows devices and the interfaces of a network namespace."""

MASKED_PATHS: Final = (
    *("/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats"),
    *("/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats"),
    *("/sys/devices/virtual/powercap", "/sys/firmware"),
)
"""Kernel paths that are hidden, as in Docker."""

READ_ONLY_PATHS: Final = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
"""Kernel paths that are read-only, as in Docker."""

_DEV_SIZE: Final = 64 * 1024 * 1024

_NAMESPACES: Final = ("pid", "network", "ipc", "uts", "mount", "cgroup", "user")
_NO_NEW_PRIVILEGES: Final = ("no-new-privileges:true", "no-new-privileges")
_OOM_SCORE: Final = Path("/proc/self/oom_score_adj")
_COMPILED_SECCOMP: Final = "run.oci.seccomp_bpf_data"
"""The annotation from which crun reads a compiled filter, in base64."""

IdMap: TypeAlias = list[dict[str, int]]
"""The value of ``uidMappings`` or ``gidMappings`` in an OCI configuration, sorted by the id in the sandbox."""


def _own_oom_score() -> int:
    return max(OOM_SCORE, int(_OOM_SCORE.read_text()))


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLayout:
    """The paths and ids on the host that one sandbox uses.

    ``root`` is the path of the sandbox's root file system. ``sources`` maps the target of each mount of
    :func:`~securebench.sandboxes.spec_rules.binds`, and :data:`INIT_TARGET`, to the staged path. ``cgroup`` is the path
    of the sandbox's cgroup from the root of each hierarchy, or ``None`` if cgroups cannot set limits. ``network`` is
    the path of an existing network namespace, or ``None`` for a new one. With ``network``, ``sources`` also
    has :data:`DEVICES_TARGET`.
    """

    root: str
    sources: Mapping[str, str]
    uid_map: IdMap
    gid_map: IdMap
    seccomp: Seccomp
    runtime: OciRuntime
    cgroup: str | None
    network: str | None = None
    oom_score: int = field(default_factory=_own_oom_score)


class OciMount(TypedDict):
    """A mount of the configuration."""

    destination: str
    type: str
    source: str
    options: list[str]


class OciRlimit(TypedDict):
    """A resource limit of a process."""

    type: str
    soft: int
    hard: int


class OciProcessConfig(TypedDict):
    """The first process of a sandbox, or a further process in it."""

    terminal: bool
    user: dict[str, int]
    args: list[str]
    env: list[str]
    cwd: str
    capabilities: dict[str, list[str]]
    rlimits: list[OciRlimit]
    noNewPrivileges: bool
    oomScoreAdj: int


class OciLinux(TypedDict):
    """The Linux-specific part of a configuration: namespaces, id maps, kernel paths and the seccomp filter."""

    namespaces: list[dict[str, str]]
    uidMappings: IdMap
    gidMappings: IdMap
    maskedPaths: list[str]
    readonlyPaths: list[str]
    cgroupsPath: NotRequired[str]
    seccomp: NotRequired[Mapping[str, Any]]


class OciConfig(TypedDict):
    """The configuration of a sandbox, according to OCI's runtime specification 1.0.2."""

    ociVersion: str
    hostname: str
    root: dict[str, str | bool]
    process: OciProcessConfig
    mounts: list[OciMount]
    annotations: dict[str, str]
    linux: OciLinux


def compile_config(spec: SandboxSpec, command: Command | None, layout: HostLayout) -> OciConfig:
    """Return the configuration of a sandbox. ``command`` is ``None`` for a persistent one.

    Raises :class:`ConfigError` for an argument or variable that cannot be passed on exactly (``command-not-text``) or a
    setting that this driver does not support (``sandbox-unsupported``). Raises :class:`MaterializationError`
    (``mount-unsafe``). Raises :class:`EngineError`: ``runtime-unavailable`` if the runtime needs subordinate ids that
    the user does not have, ``sandbox-unavailable`` if the limit on open files is above this process's hard limit.
    """
    if spec.network != "none":
        raise _unsupported(f"the network {spec.network!r}")
    if layout.runtime.needs_root_id and not all(_has_root(ids) for ids in (layout.uid_map, layout.gid_map)):
        raise _needs_subordinate_ids(layout.runtime)
    process = compile_process(spec, command, layout)
    process["args"] = [INIT_TARGET, "--", *process["args"]]
    return {
        "ociVersion": OCI_VERSION,
        "hostname": HOSTNAME,
        "root": {"path": layout.root, "readonly": spec.read_only},
        "process": process,
        "mounts": _mounts(spec, layout),
        "annotations": _annotations(layout),
        "linux": _linux(layout),
    }


def compile_process(spec: SandboxSpec, command: Command | None, layout: HostLayout) -> OciProcessConfig:
    """Return the OCI process of ``command``. Raises the errors of :func:`compile_config`."""
    of_command = {} if command is None else command.environment
    return {
        "terminal": False,
        "user": {"uid": spec.user[0], "gid": spec.user[1]},
        "args": exact_argv(IDLE_COMMAND if command is None else command.argv),
        "env": exact_environment(process_environment(spec, of_command)),
        "cwd": spec.workdir if command is None or command.workdir is None else command.workdir,
        "capabilities": _capabilities(spec),
        "rlimits": _rlimits(spec.limits, layout),
        "noNewPrivileges": _no_new_privileges(spec),
        "oomScoreAdj": layout.oom_score,
    }


def _capabilities(spec: SandboxSpec) -> dict[str, list[str]]:
    granted = granted_capabilities(spec)
    effective = granted if spec.user[0] == 0 else []
    return {"bounding": granted, "effective": effective, "permitted": effective, "inheritable": [], "ambient": []}


def _rlimits(limits: Limits, layout: HostLayout) -> list[OciRlimit]:
    _check_open_files(limits.open_files)
    values = {"CORE": 0, "FSIZE": limits.file_size, "NOFILE": limits.open_files}
    values |= {name: _lowered(name, value) for name, value in SHARED_LIMITS.items()}
    if layout.cgroup is None:
        values["DATA"] = max(limits.memory, layout.runtime.least_data)
        if not layout.runtime.limits_itself:  # otherwise the supervisor limits the processes
            values["NPROC"] = limits.pids
    return [{"type": f"RLIMIT_{name}", "soft": value, "hard": value} for name, value in values.items()]


def _lowered(name: str, value: int) -> int:
    """Return ``value``, or this process's hard limit if that is lower: a runtime cannot raise it."""
    hard = resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[1]
    return value if hard == resource.RLIM_INFINITY else min(value, hard)


def _check_open_files(limit: int) -> None:
    """Raise :class:`EngineError` if ``limit`` is above this process's hard limit, which a runtime cannot raise."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < limit:
        raise EngineError(
            f"sandboxes need a limit of {limit} open files, but the hard limit of this process is {hard}",
            code="sandbox-unavailable",
            hint=f"raise the hard limit (ulimit -Hn {limit}, or LimitNOFILE= in a systemd service), "
            "or lower 'sandbox.limits.open_files'",
        )


def _no_new_privileges(spec: SandboxSpec) -> bool:
    unknown = [option for option in spec.security_opt if option not in _NO_NEW_PRIVILEGES]
    if unknown:
        raise _unsupported(f"the security option {unknown[0]!r}")
    return bool(spec.security_opt)


def _mounts(spec: SandboxSpec, layout: HostLayout) -> list[OciMount]:
    tmpfs = [_tmpfs(path, spec.limits.tmpfs, "nosuid", "nodev", "exec") for path in spec.tmpfs]
    volumes = [_tmpfs(path, spec.limits.tmpfs, "nosuid", "nodev", "noexec") for path in empty_volumes(spec)]
    staged = [_bind(mount.target, layout, read_only=mount.read_only) for mount in checked_binds(spec)]
    everything = [*tmpfs, *volumes, *staged]
    # A mount must come after the mounts that contain its target.
    return [*_kernel_mounts(layout), _bind(INIT_TARGET, layout, read_only=True), *sorted(everything, key=_depth)]


def _depth(mount: OciMount) -> int:
    return mount["destination"].rstrip("/").count("/")


def _kernel_mounts(layout: HostLayout) -> list[OciMount]:
    closed = ("nosuid", "noexec", "nodev")
    terminals = ("nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620")
    return [
        _mount("/proc", "proc", "proc", *closed),
        _mount("/dev", "tmpfs", "tmpfs", "nosuid", "strictatime", "mode=755", *tmpfs_bounds(_DEV_SIZE)),
        _mount("/dev/pts", "devpts", "devpts", *terminals),
        _devices(layout),
        _mount("/dev/mqueue", "mqueue", "mqueue", *closed),
        _tmpfs("/dev/shm", SHM_SIZE, *closed),  # noqa: S108 - a path inside the sandbox
    ]


def _devices(layout: HostLayout) -> OciMount:
    source = layout.sources.get(DEVICES_TARGET)
    closed = ("nosuid", "noexec", "nodev", "ro")
    if source is None:
        return _mount(DEVICES_TARGET, "sysfs", "sysfs", *closed)
    return _mount(DEVICES_TARGET, "bind", source, "bind", "rprivate", *closed)


def _tmpfs(path: str, size: int, *flags: str) -> OciMount:
    return _mount(path, "tmpfs", "tmpfs", "rw", *flags, "mode=1777", *tmpfs_bounds(size))


def _bind(target: str, layout: HostLayout, *, read_only: bool) -> OciMount:
    flags = ("bind", "rprivate", "nosuid", "nodev", "ro" if read_only else "rw")
    return _mount(target, "bind", layout.sources[target], *flags)


def _mount(destination: str, kind: str, source: str, *options: str) -> OciMount:
    return {"destination": destination, "type": kind, "source": source, "options": list(options)}


def _annotations(layout: HostLayout) -> dict[str, str]:
    if layout.runtime.uses_compiled_seccomp:
        return {_COMPILED_SECCOMP: base64.b64encode(layout.seccomp.bpf).decode("ascii")}
    return {}


def _linux(layout: HostLayout) -> OciLinux:
    linux: OciLinux = {
        "namespaces": _namespaces(layout),
        "uidMappings": layout.uid_map,
        "gidMappings": layout.gid_map,
        "maskedPaths": list(MASKED_PATHS),
        "readonlyPaths": list(READ_ONLY_PATHS),
    }
    if layout.cgroup is not None and layout.runtime.owns_cgroups:
        linux["cgroupsPath"] = f"{layout.cgroup}/runtime"
    if not layout.runtime.uses_compiled_seccomp:
        document = layout.seccomp.document
        linux["seccomp"] = profile_of_gvisor(document) if layout.runtime.refuses_with_eperm else document
    return linux


def _namespaces(layout: HostLayout) -> list[dict[str, str]]:
    joined: dict[str, dict[str, str]] = {} if layout.network is None else {"network": {"path": layout.network}}
    left_out = {"network"} if joined and not layout.runtime.enters_networks else set()
    return [{"type": name, **joined.get(name, {})} for name in _NAMESPACES if name not in left_out]


def _has_root(ids: IdMap) -> bool:
    return any(found["containerID"] == 0 for found in ids)


def _needs_subordinate_ids(runtime: OciRuntime) -> EngineError:
    return EngineError(
        f"{runtime.name} needs subordinate ids unless it runs as root, and this user has none",
        code="runtime-unavailable",
        hint="install crun, which works without them; or run 'apt-get install uidmap', then "
        "'usermod --add-subuids 100000-165535 --add-subgids 100000-165535 USER'",
    )


def _unsupported(what: str) -> ConfigError:
    return ConfigError(
        f"{what} is not supported by this driver",
        code="sandbox-unsupported",
        hint="use the docker driver for it ('sandbox.driver: docker')",
    )


@dataclass(frozen=True, slots=True)
class HostIds:
    """The host ids to which ids in a sandbox can be mapped, as seen by the process that starts the sandbox.

    ``uids`` and ``gids`` are the counts of consecutive ids that start at ``first``. ``own`` is the host uid and gid of
    the sandbox's user. If ``own`` is ``None``, that user has the same uid and gid on the host as in the sandbox, except
    that 0 is mapped to ``first``, and every id in the range of the consecutive ids to the one id after this range.
    """

    first: int
    uids: int
    gids: int
    own: int | None

    @classmethod
    def of_root(cls) -> HostIds:
        """Return the ids that are available if SecureBench runs as root."""
        return cls(SHIFT, COUNT, COUNT, None)

    @classmethod
    def of_namespace(cls, uid_map: str, gid_map: str) -> HostIds:
        """Return the ids of an ordinary user, from the supervisor's ``uid_map`` and ``gid_map`` in ``/proc/PID``.

        In the supervisor's user namespace, id 0 is the user's own id, and the ids from 1 are the subordinate ids.
        """
        return cls(1, _count_from_one(uid_map), _count_from_one(gid_map), 0)


def identity_map(user: tuple[int, int], available: HostIds) -> tuple[IdMap, IdMap]:
    """Return the maps of user ids and group ids for a sandbox that runs as ``user`` (uid, gid)."""
    uid, gid = user
    return _id_map(uid, available.uids, available), _id_map(gid, available.gids, available)


def outside(id_map: IdMap, inside: int) -> int:
    """Return the host id to which ``id_map`` maps ``inside``, an id in the sandbox. The map must contain it."""
    entry = next(e for e in id_map if e["containerID"] <= inside < e["containerID"] + e["size"])
    return entry["hostID"] + inside - entry["containerID"]


def _id_map(own: int, count: int, available: HostIds) -> IdMap:
    """Return an id map, in ascending order, for the sandbox's id ``own`` and as many other ids as possible."""
    hole = available.own is None  # skip one host id, so that each other id ``c`` is still mapped to ``first + c``
    if available.own is not None:
        outside = available.own
    elif available.first <= own < available.first + count:
        outside = available.first + count  # The kernel refuses a map with ranges that overlap.
    else:
        outside = own or available.first
    below = min(own, count, COUNT)
    above = min(count - below - hole, COUNT - own - 1)
    entries = [
        _id_range(0, available.first, below),
        _id_range(own, outside, 1),
        _id_range(own + 1, available.first + below + hole, above),
    ]
    return [entry for entry in entries if entry["size"] > 0]


def _id_range(inside: int, outside: int, size: int) -> dict[str, int]:
    return {"containerID": inside, "hostID": outside, "size": size}


def _count_from_one(id_map: str) -> int:
    """Return the number of consecutive mapped ids that start at 1."""
    following = 1
    for first, _, size in sorted(tuple(map(int, line.split())) for line in id_map.splitlines()):
        if first == following:
            following += size
    return following - 1
