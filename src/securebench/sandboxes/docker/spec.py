"""Compile a :class:`SandboxSpec` to the JSON from which a Docker Engine creates a container.

A golden test compares the whole document. Notes on the less obvious parts:

* ``Entrypoint: [""]`` clears the image's entrypoint, which could change the command and its exit code.
* A bare ``NAME`` in ``Env`` removes a variable of the image, or one that the engine would add.
* ``NetworkDisabled`` gives the container a new network namespace with loopback only, like network ``none``, but without
  the engine's network setup, which would take 40 % of the time to start and remove a container. The engine then writes
  no ``hosts`` file either, so SecureBench mounts its own ``hosts`` and ``resolv.conf``: ``localhost`` resolves, and no
  name is looked up outside.
* A container with forwarded ports joins the network namespace of its holder, a container without a network. It has the
  holder's host name and no name resolution of its own, so the same files are mounted.
* ``/tmp`` counts as memory. It is mounted exec, like the workspace, because agents build and run programs there.
* SecureBench has its own seccomp profile, the same for every driver: the defaults of older engines allow ``io_uring``
  and sockets to other virtual machines of the same host. On a machine type without a profile, the engine's default is
  used.
* Masked paths and read-only paths are not set, so the engine's defaults apply.
* A volume that the image declares would be writable storage on the host's disk. Under a read-only root, an empty tmpfs
  is mounted there instead. Under a writable root, the volume keeps the image's files and is removed with the container.
"""

from __future__ import annotations

import json
import os
from functools import cache
from typing import TYPE_CHECKING, Any

from securebench.sandboxes.seccomp_profile import profile, profile_of_gvisor
from securebench.sandboxes.spec_rules import (
    HOSTNAME,
    IDLE_COMMAND,
    OOM_SCORE,
    RUNSC,
    SENTRY_THREADS,
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

    from securebench.sandboxes.base import Command, Limits, Mount, SandboxSpec

_NO_NAMES = {"Dns": ["127.0.0.1"], "DnsSearch": ["."]}
_ADDED_BY_ENGINE = ("HOSTNAME", "PATH")


def compile_container(
    spec: SandboxSpec,
    command: Command | None,
    labels: Mapping[str, str],
    runtime: str | None = None,
    *,
    joined: str | None = None,
) -> dict[str, Any]:
    """Return the body of a container's create request. ``command`` is ``None`` for a persistent sandbox.

    ``runtime`` is the name of a runtime of the engine, or ``None`` for its default. ``joined`` is the id of a container
    whose network namespace the new one joins.

    Raises :class:`ConfigError` (``command-not-text``) for an argument or variable that cannot be passed on exactly,
    :class:`MaterializationError` (``mount-unsafe``) for a mount with an unsafe source or target, and the errors of
    :func:`granted_capabilities`.
    """
    persistent = command is None
    return {
        "Image": spec.image.id,
        "Entrypoint": [""],
        "Cmd": exact_argv(IDLE_COMMAND if command is None else command.argv),
        "Env": _environment(spec, {} if command is None else command.environment),
        "WorkingDir": spec.workdir if command is None or command.workdir is None else command.workdir,
        "User": "{}:{}".format(*spec.user),
        "Hostname": HOSTNAME if joined is None else "",
        "Domainname": "",
        "AttachStdin": True,
        "AttachStdout": not persistent,
        "AttachStderr": not persistent,
        "OpenStdin": True,
        "StdinOnce": True,
        "Tty": False,
        "NetworkDisabled": spec.network == "none" and joined is None,
        "Healthcheck": {"Test": ["NONE"]},
        "Labels": {**spec.labels, **labels},
        "HostConfig": _host_config(spec, joined, runtime) | ({} if runtime is None else {"Runtime": runtime}),
    }


def _environment(spec: SandboxSpec, of_command: Mapping[str, str]) -> list[str]:
    complete = process_environment(spec, of_command)
    removed = sorted({*spec.image.environment, *_ADDED_BY_ENGINE} - set(complete))
    return exact_environment(complete) + removed


def _host_config(spec: SandboxSpec, joined: str | None, runtime: str | None) -> dict[str, Any]:
    limits = spec.limits
    return {
        **({"NetworkMode": spec.network, **_NO_NAMES} if joined is None else {"NetworkMode": f"container:{joined}"}),
        "IpcMode": "private",
        "CgroupnsMode": "private",
        "Privileged": False,
        "CapDrop": list(spec.cap_drop),
        "CapAdd": list(spec.cap_add),
        "SecurityOpt": _security_options(spec, of_gvisor=runtime == RUNSC),
        "ReadonlyRootfs": spec.read_only,
        "Tmpfs": dict.fromkeys(spec.tmpfs, f"rw,nosuid,nodev,exec,mode=1777,size={limits.tmpfs}"),
        "ShmSize": SHM_SIZE,
        "Mounts": _mounts(spec),
        "Init": True,
        "AutoRemove": False,
        "RestartPolicy": {"Name": "no"},
        "LogConfig": {"Type": "none", "Config": {}},
        "OomScoreAdj": OOM_SCORE,
        **_resources(limits, of_gvisor=runtime == RUNSC),
    }


def _security_options(spec: SandboxSpec, *, of_gvisor: bool) -> list[str]:
    if any(option.startswith("seccomp=") for option in spec.security_opt):
        return list(spec.security_opt)
    return [*spec.security_opt, *_seccomp(tuple(granted_capabilities(spec)), of_gvisor=of_gvisor)]


@cache
def _seccomp(capabilities: tuple[str, ...], *, of_gvisor: bool) -> tuple[str, ...]:
    """Return the security option with SecureBench's seccomp profile, or ``()`` on a machine type without one."""
    try:
        document = profile(os.uname().machine, capabilities)
    except KeyError:
        return ()
    return (f"seccomp={json.dumps(profile_of_gvisor(document) if of_gvisor else document)}",)


def _resources(limits: Limits, *, of_gvisor: bool) -> dict[str, Any]:
    ulimits = {"core": 0, "fsize": limits.file_size, "nofile": limits.open_files}
    ulimits |= {name.lower(): value for name, value in SHARED_LIMITS.items()}
    return {
        "Memory": limits.memory,
        "MemorySwap": limits.memory,
        "PidsLimit": limits.pids + (SENTRY_THREADS if of_gvisor else 0),
        "NanoCpus": round(limits.cpus * 1_000_000_000),
        "Ulimits": [{"Name": name, "Soft": value, "Hard": value} for name, value in ulimits.items()],
    }


def _mounts(spec: SandboxSpec) -> list[dict[str, Any]]:
    volumes = [_empty(path, spec.limits.tmpfs) for path in empty_volumes(spec)]
    return [_bind(mount) for mount in checked_binds(spec)] + volumes


def _bind(mount: Mount) -> dict[str, Any]:
    return {
        "Type": "bind",
        "Source": str(mount.source),
        "Target": mount.target,
        "ReadOnly": mount.read_only,
        "BindOptions": {"Propagation": "rprivate", "NonRecursive": True},
    }


def _empty(path: str, size: int) -> dict[str, Any]:
    return {"Type": "tmpfs", "Target": path, "TmpfsOptions": {"SizeBytes": size, "Mode": 0o1777}}
