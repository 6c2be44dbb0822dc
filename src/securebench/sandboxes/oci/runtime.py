"""OCI runtimes, which create a sandbox from an OCI configuration: how to find them, how they differ, their arguments.

* **crun** uses a compiled seccomp filter. It does not manage cgroups here, because it is started in the sandbox's
  cgroups.
* **runc** reads the seccomp profile as text and compiles it each time. As root it creates its own cgroups.
* **runsc** (gVisor) is a kernel in user space, without a network. Like crun, it is started in the sandbox's cgroups.
  Its network stack does not see sockets that listen in its network namespace. runsc could use the host's network
  stack only if the user who starts runsc were mapped into the sandbox. Root is never mapped, so runsc does not support
  forwarded ports.

The standard streams belong to the sandbox, so a runtime writes its messages to a log. If the log contains an error, the
command never ran, whatever the runtime's exit code is. There is one exception: if the container exits while the runtime
starts a command in it, the log may contain an error although the command ran. The runtime writes the pid of the started
process to another file, next to the log.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from securebench.errors import EngineError
from securebench.sandboxes.oci.supervisor.processes import SCRATCH_VARIABLE
from securebench.sandboxes.spec_rules import RUNSC, SENTRY_THREADS

if TYPE_CHECKING:
    from collections.abc import Iterable

LOG: Final = "log"
"""The name of a runtime's log in its bundle."""
PID: Final = "pid"
"""The name of the file in a bundle that contains the pid of the sandbox's first process, as the runtime sees it."""

_PREFERRED: Final = ("crun", "runc")
_DIRECTORIES: Final = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
"""Directories to search after ``PATH``, because the ``PATH`` of ordinary users often lacks system programs."""

_OPTIONS: Final = {
    "crun": ("--cgroup-manager=disabled", "--log-format=json"),
    "runc": ("--log-format=json",),
    "runsc": ("--network=none", "--ignore-cgroups", "--oci-seccomp", "--log-format=json"),
}
_WRITE_THROUGH: Final = {"crun": (), "runc": (), "runsc": ("--overlay2=none",)}
"""Options for sandboxes whose changes to the root file system are collected: gVisor's own overlay would hide them."""
_MINIMUM: Final = {"crun": (1, 8), "runc": (1, 1, 12)}
"""Versions below these have known container escapes (runc: CVE-2024-21626), unless the distribution patched them."""

_DATA_OF_RUNC: Final = 128 * 1024 * 1024
"""The lowest ``RLIMIT_DATA`` for runc, in bytes. Measurements showed that runc needs between 80 and 88 MiB."""

_INITS: Final = ("tini-static", "docker-init", "catatonit", "tini")
_INIT_DIRECTORIES: Final = (*_DIRECTORIES, "/usr/libexec/docker", "/usr/libexec/podman", "/usr/libexec/catatonit")
_VERSION_SECONDS: Final = 20.0


@dataclass(frozen=True, slots=True)
class OciRuntime:
    """An installed runtime. ``rootless`` is true if it is started in the user namespace of an ordinary user."""

    name: str
    path: str
    version: str
    rootless: bool = False

    @property
    def uses_compiled_seccomp(self) -> bool:
        """Whether the runtime's configuration contains the compiled filter instead of the profile as text."""
        return self.name == "crun"

    @property
    def copies_itself(self) -> bool:
        """Whether the runtime makes a copy of itself and runs from the copy.

        It makes no copy if it already runs from a sealed one.
        """
        return self.name == "crun"

    @property
    def owns_cgroups(self) -> bool:
        """Whether the runtime creates a cgroup at ``linux.cgroupsPath`` in each hierarchy, and removes only that."""
        return self.name == "runc" and not self.rootless

    @property
    def detaches_commands(self) -> bool:
        """Whether the runtime starts a command in a sandbox and exits, so that the supervisor waits for the command.

        If runc stayed, it would copy the command's streams and wait until all processes have closed them. A daemon
        that the command left would then delay the result.
        """
        return self.name == "runc"

    @property
    def detaches_containers(self) -> bool:
        """Whether the runtime can start a sandbox and exit. The supervisor then waits for the sandbox's first process.

        A runtime that waits returns the exit code 137 both if the first process was killed and if it exited with 137.
        The first process in gVisor runs on gVisor's own kernel, so only gVisor can wait for it.
        """
        return self.name != RUNSC

    @property
    def needs_root_id(self) -> bool:
        """Whether id 0 must be mapped in each sandbox, which requires subordinate ids if the host user is not root."""
        return self.name != "crun"

    @property
    def extra_pids(self) -> int:
        """The number by which a sandbox's process limit is raised for the runtime's own processes and threads."""
        return SENTRY_THREADS if self.name == RUNSC else 0

    @property
    def least_data(self) -> int:
        """The lowest ``RLIMIT_DATA``, in bytes, with which the runtime can create a sandbox.

        runc itself needs memory under this limit. It applies the limits of the sandbox's first process to itself, and
        then compiles the seccomp filter.
        """
        return _DATA_OF_RUNC if self.name == "runc" else 0

    @property
    def locks_root(self) -> bool:
        """Whether the runtime can use a root file system that is mounted ``nosuid`` and ``nodev``."""
        # A sandbox cannot remove these flags. gVisor tries to remount the root file system without them, and fails. It
        # does not need the flags, because it does not expose the mounted files directly.
        return self.name != RUNSC

    @property
    def can_run_unreadable(self) -> bool:
        """Whether the runtime can start a program that is executable but not readable. gVisor has to read programs."""
        return self.name != RUNSC

    @property
    def refuses_with_eperm(self) -> bool:
        """Whether the runtime's filter returns ``EPERM`` for every refused call, whatever the profile says."""
        return self.name == RUNSC

    @property
    def warning(self) -> str:
        """A warning about the runtime's version, or an empty string."""
        minimum = _MINIMUM.get(self.name, ())
        if _numbers(self.version) >= minimum:
            return ""
        required = ".".join(map(str, minimum))
        if not self.version:
            return f"{self.name} has an unknown version: versions before {required} have known container escapes"
        return (
            f"{self.name} {self.version} is older than {required} and has known container escapes "
            "unless your distribution has patched it: keep it up to date"
        )

    @property
    def has_forwarded_ports(self) -> bool:
        """Whether a sandbox can reach a socket that listens in its network namespace."""
        return self.name != RUNSC

    @property
    def enters_networks(self) -> bool:
        """Whether the runtime itself can enter an existing network namespace.

        If false, the supervisor starts the runtime in the network namespace.
        """
        # runc can enter the namespace for ``run``, but ``exec`` first enters the sandbox's user namespace. An ordinary
        # user's crun without cgroups is started in a new user namespace (see ``limits_itself``). In these user
        # namespaces, runc and crun have no privilege over the network namespace.
        return self.name != "runc" and not (self.rootless and self.limits_itself)

    @property
    def limits_itself(self) -> bool:
        """Whether the runtime applies the sandbox's resource limits to itself before it creates the sandbox.

        If so, the process limit of an ordinary user's sandbox counts the processes of all the user's sandboxes, unless
        each runtime is started in its own user namespace.
        """
        return self.name == "crun"

    def run_argv(
        self, bundle: str, state: str, sandbox_id: str, *, collects: bool = False, detached: bool = False
    ) -> list[str]:
        """Return the arguments to run a sandbox from ``bundle``/config.json.

        With ``collects``, files that are written to the root file system can be read afterwards. With ``detached``, the
        runtime does not wait for the end of the sandbox. Without ``detached``, the runtime waits, and then removes the
        sandbox's state directory (see :func:`record_of`).
        """
        files = ("--bundle", bundle, "--pid-file", f"{bundle}/{PID}")
        options = ("run", *(["--detach"] if detached else []), *files, _unique(state, sandbox_id))
        return [*self._start(state, f"{bundle}/{LOG}"), *(_WRITE_THROUGH[self.name] if collects else ()), *options]

    def exec_argv(self, process_file: str, state: str, sandbox_id: str) -> list[str]:
        """Return the arguments to run the process of ``process_file`` in a sandbox. See :attr:`detaches_commands`."""
        files = ("--process", process_file, "--pid-file", f"{process_file}.{PID}")
        options = ("exec", *(["--detach"] if self.detaches_commands else []), *files, _unique(state, sandbox_id))
        return [*self._start(state, f"{process_file}.{LOG}"), *options]

    def _start(self, state: str, log: str) -> list[str]:
        return [self.path, *_OPTIONS[self.name], f"--log={log}", "--root", state]


def find_runtime(name: str | None = None) -> OciRuntime:
    """Return the runtime ``name``. By default, return crun or, if crun is not installed, runc.

    Raises :class:`EngineError` (``runtime-unavailable``) if the runtime is not supported or not installed, or if its
    version cannot be read.
    """
    if name is not None and name not in _OPTIONS:
        raise EngineError(
            f"the runtime {name!r} is not supported",
            code="runtime-unavailable",
            hint=f"use one of {', '.join(_OPTIONS)}",
        )
    names = _PREFERRED if name is None else (name,)
    for candidate in names:
        path = _find(candidate, _DIRECTORIES)
        if path is not None:
            return OciRuntime(candidate, path, _version_of(path), rootless=os.geteuid() != 0)
    raise EngineError(
        f"the runtime {' or '.join(names)} is not installed",
        code="runtime-unavailable",
        hint="run 'apt-get install crun tini'; if 'sandbox.runtime' names another runtime, install that one",
    )


def find_init() -> Path:
    """Return the init that reaps orphaned processes in sandboxes: a statically linked tini or catatonit.

    Raises :class:`EngineError` (``runtime-unavailable``) if none is installed.
    """
    for name in _INITS:
        path = _find(name, _INIT_DIRECTORIES)
        if path is not None and _is_static(Path(path)):
            return Path(path)
    raise EngineError(
        f"no statically linked init for sandboxes is installed (one of {', '.join(_INITS)})",
        code="runtime-unavailable",
        hint="install one, for example: apt-get install tini",
    )


def record_of(state: str, sandbox_id: str) -> str:
    """Return the directory in which a runtime stores the state of a sandbox."""
    return f"{state}/{_unique(state, sandbox_id)}"


def _unique(state: str, sandbox_id: str) -> str:
    """Return an id that is unique on the host, because gVisor uses it in the name of a socket on the host."""
    return f"{Path(state).parent.name}-{sandbox_id}"


def _find(name: str, directories: Iterable[str]) -> str | None:
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), *directories))
    found = shutil.which(name, path=path)
    return None if found is None else os.path.realpath(found)


def _version_of(path: str) -> str:
    argv = [path, "--version"]
    env = {**os.environ, SCRATCH_VARIABLE: os.devnull}  # so that an interrupt leaves no file on the host
    try:
        done = subprocess.run(argv, capture_output=True, timeout=_VERSION_SECONDS, check=True, env=env)  # noqa: S603 - an installed runtime
    except (OSError, subprocess.SubprocessError) as error:
        raise EngineError(
            f"cannot read the version of {path}: {error}",
            code="runtime-unavailable",
            hint="reinstall the runtime, or remove 'sandbox.runtime' to use the default runtime",
        ) from error
    found = re.search(rb"version\s+(\S+)", done.stdout)
    return "" if found is None else found[1].decode("ascii", "replace")


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"\d+(\.\d+)*", version)
    return () if found is None else tuple(map(int, found[0].split(".")))


def _is_static(path: Path) -> bool:
    """Whether the program at ``path`` needs no dynamic loader, which an image may lack. Reads the file's beginning."""
    with path.open("rb") as file:
        head = file.read(4096)
    return head[:4] == b"\x7fELF" and b"/ld-" not in head and b"/ld." not in head
