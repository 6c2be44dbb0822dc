"""A fake machine for the checks of ``securebench doctor``. By default, it has no problems."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from securebench.doctor.model import ClockFacts, EngineFacts
from securebench.errors import EngineError
from securebench.limits import GIB
from securebench.sandboxes.base import DriverInfo
from securebench.sandboxes.enforcement import ENFORCEABLE
from securebench.sandboxes.oci.isolation import Isolation
from securebench.sandboxes.oci.runtime import OciRuntime
from securebench.tester_run.planning.capacity import Capacity

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")

FILES = {
    "/proc/sys/user/max_user_namespaces": "15000\n",
    "/proc/sys/kernel/seccomp/actions_avail": "kill_process errno allow\n",
    "/proc/filesystems": "nodev\tproc\nnodev\toverlay\n\text4\n",
    "/etc/subuid": "somebody:100000:65536\nuser:165536:65536\n",
    "/etc/subgid": "user:165536:65536\n",
}
PROGRAMS = frozenset({"apt-get", "mmdebstrap", "newuidmap", "newgidmap"})
RUNTIMES = {
    "crun": OciRuntime("crun", "/usr/bin/crun", "1.14"),
    "runc": OciRuntime("runc", "/usr/sbin/runc", "1.1.15"),
    "runsc": OciRuntime("runsc", "/usr/bin/runsc", "20250101.0"),
}
DOCKER = DriverInfo("docker", "runc", "27.0.3", {"cgroups": "2"}, weaker=("user-namespace",))
OCI = DriverInfo("oci", "crun", "1.14")
PROVED = Isolation(tuple(ENFORCEABLE), ())
ENGINE = EngineFacts("unix:///run/docker.sock", DOCKER, ("runc", "runsc"))
CAPACITY = Capacity(memory=16 * GIB, cores=4, disk=100 * GIB, open_files=1000)
NOW = ClockFacts(2e9, 2e9, 1.9e9, 0.0)


@dataclass
class FakeMachine:
    """A machine whose methods return the values of its fields, or raise a value that is an exception."""

    is_root: bool = True
    user: str = "user"
    kernel: tuple[int, ...] = (6, 1)
    python: str = "3.11.7, /usr/bin/python3"
    files: dict[str, str] = field(default_factory=lambda: dict(FILES))
    programs: frozenset[str] = PROGRAMS
    working: bool = True
    runtimes: dict[str, OciRuntime] = field(default_factory=lambda: dict(RUNTIMES))
    init_path: Path | Exception = Path("/usr/bin/tini-static")
    library: str | Exception = "2.5.4"
    control_groups: tuple[str, tuple[str, ...]] = ("v2", ("memory", "pids", "cpu"))
    proved: Isolation | Exception = PROVED
    docker: EngineFacts | Exception = ENGINE
    auto: tuple[DriverInfo, str] | Exception = (OCI, "")
    free: int = 10**11
    writable: bool = True
    stored: frozenset[str] = frozenset({"securebench/python:3.11"})
    in_engine: frozenset[str] | Exception = frozenset()
    registry_answer: str | Exception = "registry"
    installed_agents: frozenset[str] = frozenset({"codex", "claude_code"})
    npm: str | Exception = "npm"
    mirror: str | Exception = "http://mirror/debian"
    time: ClockFacts = NOW
    left: Capacity = CAPACITY

    def read(self, path: str) -> str | None:
        """Return the text of a file, or ``None`` if it is not in ``files``."""
        return self.files.get(path)

    def has(self, program: str) -> bool:
        """Return whether a program is installed."""
        return program in self.programs

    def succeeds(self, argv: Sequence[str]) -> bool:
        """Return ``working`` for every command."""
        return self.working

    def runtime(self, name: str) -> OciRuntime:
        """Return a runtime, or raise an error if it is not installed."""
        if name not in self.runtimes:
            raise EngineError(f"the runtime {name} is not installed", code="runtime-unavailable")
        return self.runtimes[name]

    def init(self) -> Path:
        """Return the path of the init for sandboxes."""
        return _given(self.init_path)

    def libseccomp(self) -> str:
        """Return the version of libseccomp."""
        return _given(self.library)

    def cgroups(self) -> tuple[str, tuple[str, ...]]:
        """Return the layout of cgroups and the usable controllers."""
        return self.control_groups

    def isolation(self) -> Isolation:
        """Return what a test sandbox enforces."""
        return _given(self.proved)

    def engine(self) -> EngineFacts:
        """Return the facts about the Docker Engine."""
        return _given(self.docker)

    def chosen(self) -> tuple[DriverInfo, str]:
        """Return the driver that ``auto`` chooses, and why."""
        return _given(self.auto)

    def capacity(self) -> Capacity:
        """Return the resources that a run can use."""
        return self.left

    def store(self) -> Path:
        """Return the directory of the image store."""
        return Path("/var/lib/images")

    def here(self) -> Path:
        """Return the current directory."""
        return Path("/home/user")

    def free_bytes(self, path: Path) -> int:
        """Return the same number of free bytes for every path."""
        return self.free

    def may_write(self, path: Path) -> bool:
        """Return ``writable`` for every path."""
        return self.writable

    def base_images(self) -> tuple[str, ...]:
        """Return the reference of the only base image."""
        return ("securebench/python:3.11",)

    def is_stored(self, reference: str) -> bool:
        """Return whether the image store has an image."""
        return reference in self.stored

    def engine_has(self, reference: str) -> bool:
        """Return whether the engine has an image."""
        return reference in _given(self.in_engine)

    def registry(self) -> str:
        """Return the name of the default image registry."""
        return _given(self.registry_answer)

    def agents(self) -> tuple[str, ...]:
        """Return the names of two agent programs."""
        return ("codex", "claude_code")

    def has_agent(self, name: str) -> bool:
        """Return whether an agent program is installed."""
        return name in self.installed_agents

    def npm_registry(self) -> str:
        """Return the name of the npm registry."""
        return _given(self.npm)

    def package_mirror(self) -> str:
        """Return the address of the package mirror."""
        return _given(self.mirror)

    def clock(self) -> ClockFacts:
        """Return the facts about the clock."""
        return self.time


def _given(value: T | Exception) -> T:
    if isinstance(value, Exception):
        raise value
    return value
