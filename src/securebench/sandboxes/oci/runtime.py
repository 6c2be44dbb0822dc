"""The program that makes a sandbox out of an OCI configuration: which one, where, and how it is called.

* **crun** takes a compiled seccomp filter, and leaves cgroups to others: it is put into its cgroups beforehand.
* **runc** takes the seccomp profile as text and compiles it each time. As root it makes a cgroup of its own.
* **runsc** (gVisor) is a kernel of its own in user space, with no network; it is put into cgroups like crun. Its own
  network stack knows nothing of a socket that listens in its namespace, and to use the host's instead it has to be
  started by a user who is mapped into the sandbox, as root is in none: so it has no forwarded ports.

What a runtime has to say goes to a log, as the standard streams belong to the sandbox: in the bundle for ``run``, and
beside the process document, with ``.log`` after its name, for ``exec``. A log with an error in it means that the
command never ran, whatever the exit code. The pid of the first process is written beside the log, as ``pid``.
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
from securebench.sandboxes.gvisor import RUNSC, SENTRY_THREADS
from securebench.sandboxes.oci.supervisor.processes import SCRATCH_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterable

LOG: Final = "log"
"""The name of a runtime's log in its bundle."""
PID: Final = "pid"
"""The name of the file in a bundle that holds the pid of the sandbox's first process, as the runtime sees it."""

_PREFERRED: Final = ("crun", "runc")
_DIRECTORIES: Final = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
"""Looked through after ``PATH``: an ordinary user's often lacks those of system programs."""

_OPTIONS: Final = {
    "crun": ("--cgroup-manager=disabled", "--log-format=json"),
    "runc": ("--log-format=json",),
    "runsc": ("--network=none", "--ignore-cgroups", "--oci-seccomp", "--log-format=json"),
}
_WRITE_THROUGH: Final = {"crun": (), "runc": (), "runsc": ("--overlay2=none",)}
"""gVisor has an overlay of its own over the root, which nobody can read afterwards."""
_MINIMUM: Final = {"crun": (1, 8), "runc": (1, 1, 12)}
"""Older versions have known container escapes (runc: CVE-2024-21626), unless the distribution has patched them."""

_DATA_OF_RUNC: Final = 128 * 1024 * 1024
"""Bytes. It was seen to need between 80 and 88 MiB."""

_INITS: Final = ("tini-static", "docker-init", "catatonit", "tini")
_INIT_DIRECTORIES: Final = (*_DIRECTORIES, "/usr/libexec/docker", "/usr/libexec/podman", "/usr/libexec/catatonit")
_VERSION_SECONDS: Final = 20.0


@dataclass(frozen=True, slots=True)
class OciRuntime:
    """A runtime that is installed. ``rootless``: it is started in a user namespace of an ordinary user."""

    name: str
    path: str
    version: str
    rootless: bool = False

    @property
    def takes_compiled_seccomp(self) -> bool:
        """Whether its configuration holds the filter itself, not the profile as text."""
        return self.name == "crun"

    @property
    def copies_itself(self) -> bool:
        """Whether it starts twice, from a copy of itself, unless it is run from a sealed one."""
        return self.name == "crun"

    @property
    def owns_cgroups(self) -> bool:
        """Whether it makes a cgroup in every hierarchy, at ``linux.cgroupsPath``, and removes that one alone."""
        return self.name == "runc" and not self.rootless

    @property
    def leaves_commands(self) -> bool:
        """Whether it starts a command in a sandbox and goes, so that the supervisor waits for the command itself.

        runc would carry its streams, and wait until nobody has them open: a daemon would hold up who started it.
        """
        return self.name == "runc"

    @property
    def leaves_containers(self) -> bool:
        """Whether it starts a sandbox and goes, so that the supervisor waits for the sandbox's first process itself.

        A runtime that waits gives one exit code, 137, to a first process that was killed and to one that ended so.
        gVisor's first process is one of its own kernel, which it has to wait for.
        """
        return self.name != RUNSC

    @property
    def needs_root_id(self) -> bool:
        """Whether a sandbox must have a root, whoever runs in it: an ordinary user then needs subordinate ids."""
        return self.name != "crun"

    @property
    def extra_pids(self) -> int:
        """How many processes and threads a sandbox has beyond those that its limit is meant for: gVisor's own."""
        return SENTRY_THREADS if self.name == RUNSC else 0

    @property
    def least_data(self) -> int:
        """How many bytes of data a sandbox's processes must each be allowed, or it cannot be made.

        runc compiles the seccomp filter in the sandbox, when it has taken on the limits of its first process.
        """
        return _DATA_OF_RUNC if self.name == "runc" else 0

    @property
    def locks_root(self) -> bool:
        """Whether its root file system may be mounted nosuid and nodev, which a user namespace cannot take back.

        gVisor mounts it again without, and fails; what it shows to sandboxes are files of its own.
        """
        return self.name != RUNSC

    @property
    def runs_unreadable(self) -> bool:
        """Whether it can start a program that nobody may read. gVisor reads programs itself."""
        return self.name != RUNSC

    @property
    def refuses_with_eperm(self) -> bool:
        """Whether its filter answers so to all that it refuses, whatever the profile says."""
        return self.name == RUNSC

    @property
    def warning(self) -> str:
        """What should be said of its version, or nothing."""
        minimum = _MINIMUM.get(self.name, ())
        if _numbers(self.version) >= minimum:
            return ""
        wanted = ".".join(map(str, minimum))
        return (
            f"{self.name} {self.version} is older than {wanted}, and has known container escapes "
            "unless your distribution has patched it: keep it up to date"
        )

    @property
    def has_forwarded_ports(self) -> bool:
        """Whether a sandbox can reach a socket that listens in its network namespace."""
        return self.name != RUNSC

    @property
    def enters_networks(self) -> bool:
        """Whether it enters a network namespace that it is given. Else it has to be started in that one.

        runc does for ``run``; but for ``exec`` it enters the user namespace first, which has no right over the other.
        Nor has the namespace in which an ordinary user's crun is counted.
        """
        return self.name != "runc" and not (self.rootless and self.takes_limits_on)

    @property
    def takes_limits_on(self) -> bool:
        """Whether it limits itself as its sandbox is to be limited before it makes that, as crun does.

        A limit of an ordinary user's processes would then be one of all his sandboxes together.
        """
        return self.name == "crun"

    def run_argv(
        self, bundle: str, state: str, sandbox_id: str, *, collects: bool = False, leaves: bool = False
    ) -> list[str]:
        """Return what makes a sandbox from ``bundle``/config.json, waits for its first process and removes it.

        ``collects``: what is written to the root file system is there afterwards. ``leaves``: it does not wait, and
        its record of the sandbox (:func:`record_of`) is left as well.
        """
        files = ("--bundle", bundle, "--pid-file", f"{bundle}/{PID}")
        options = ("run", *(["--detach"] if leaves else []), *files, _unique(state, sandbox_id))
        return [*self._start(state, f"{bundle}/{LOG}"), *(_WRITE_THROUGH[self.name] if collects else ()), *options]

    def exec_argv(self, process_file: str, state: str, sandbox_id: str) -> list[str]:
        """Return what runs the process of ``process_file`` in a sandbox, and waits for it, or leaves it and ends."""
        files = ("--process", process_file, "--pid-file", f"{process_file}.{PID}")
        options = ("exec", *(["--detach"] if self.leaves_commands else []), *files, _unique(state, sandbox_id))
        return [*self._start(state, f"{process_file}.{LOG}"), *options]

    def delete_argv(self, state: str, sandbox_id: str) -> list[str]:
        """Return what ends and forgets a sandbox that was not removed by its ``run``."""
        delete = ("delete", "--force", _unique(state, sandbox_id))
        return [*self._start(state, "/dev/null"), *delete]

    def _start(self, state: str, log: str) -> list[str]:
        return [self.path, *_OPTIONS[self.name], f"--log={log}", "--root", state]


def find_runtime(name: str | None = None) -> OciRuntime:
    """Return the runtime ``name``, or the best that is installed: crun, else runc.

    Raises :class:`EngineError` (``runtime-unavailable``) if there is none, or it does not say its version.
    """
    names = _PREFERRED if name is None else (name,)
    for candidate in names:
        path = _find(candidate, _DIRECTORIES)
        if candidate in _OPTIONS and path is not None:
            return OciRuntime(candidate, path, _version_of(path), rootless=os.geteuid() != 0)
    raise EngineError(
        f"the runtime {' or '.join(names)} is not installed",
        code="runtime-unavailable",
        hint="install it, for example: apt-get install crun tini",
    )


def find_init() -> Path:
    """Return the init that reaps what a sandbox's processes leave: tini, or catatonit, linked statically.

    Raises :class:`EngineError` (``runtime-unavailable``) if there is none.
    """
    for name in _INITS:
        path = _find(name, _INIT_DIRECTORIES)
        if path is not None and _is_static(Path(path)):
            return Path(path)
    raise EngineError(
        f"no init for sandboxes is installed: {', '.join(_INITS)}, and linked statically",
        code="runtime-unavailable",
        hint="install one, for example: apt-get install tini",
    )


def record_of(state: str, sandbox_id: str) -> str:
    """Return the directory in which a runtime keeps what it knows of a sandbox."""
    return f"{state}/{_unique(state, sandbox_id)}"


def _unique(state: str, sandbox_id: str) -> str:
    """Return an id that no other driver gives: gVisor takes it for the name of a socket that is the whole host's."""
    return f"{Path(state).parent.name}-{sandbox_id}"


def _find(name: str, directories: Iterable[str]) -> str | None:
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), *directories))
    found = shutil.which(name, path=path)
    return None if found is None else os.path.realpath(found)


def _version_of(path: str) -> str:
    argv = [path, "--version"]
    env = {**os.environ, SCRATCH_VARIABLE: os.devnull}  # nothing on the host's disk, which an interrupt would leave
    try:
        done = subprocess.run(argv, capture_output=True, timeout=_VERSION_SECONDS, check=True, env=env)  # noqa: S603 - as found
    except (OSError, subprocess.SubprocessError) as error:
        raise EngineError(
            f"{path} does not say its version: {error}",
            code="runtime-unavailable",
            hint="install it again, or leave sandbox.runtime out",
        ) from error
    found = re.search(rb"version\s+(\S+)", done.stdout)
    return "" if found is None else found[1].decode("ascii", "replace")


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"\d+(\.\d+)*", version)
    return () if found is None else tuple(map(int, found[0].split(".")))


def _is_static(path: Path) -> bool:
    """Whether a program needs no loader, which an image may not have: none of its segments names one."""
    with path.open("rb") as file:
        head = file.read(4096)
    return head[:4] == b"\x7fELF" and b"/ld-" not in head and b"/ld." not in head
