"""The findings of checks, and the facts about a machine that checks need."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from securebench.sandboxes.base import DriverInfo
    from securebench.sandboxes.oci.isolation import Isolation
    from securebench.sandboxes.oci.runtime import OciRuntime
    from securebench.tester_run.planning.capacity import Capacity


class State(StrEnum):
    """The state of one thing that was checked."""

    OK = "ok"
    WEAKER = "weaker"
    """It works, but not as well as it could."""
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check: the state, what was ``found``, what that means, and how to fix a problem, if known."""

    name: str
    state: State
    found: str
    meaning: str = ""
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """All findings, in display order.

    ``driver`` is the driver that ``auto`` chooses, or empty. ``can_run`` is true if any driver works on this machine,
    including one that ``auto`` does not choose.
    """

    findings: tuple[Finding, ...]
    driver: str
    can_run: bool


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """A Docker Engine: its address, its description, and the names of its runtimes."""

    url: str
    info: DriverInfo
    runtimes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClockFacts:
    """Facts about the clock, in seconds.

    ``now`` is the current time, ``written`` the time stamp of a file that was just written, and ``installed`` the time
    at which SecureBench was installed. ``jumped`` is how far the clock advanced during the check, minus how far the
    monotonic clock advanced.
    """

    now: float
    written: float
    installed: float
    jumped: float


class Machine(Protocol):
    """What the checks need to know about a machine. Tests use a replacement.

    A method may raise an error if it has no answer.
    """

    @property
    def is_root(self) -> bool:
        """Whether this user is root."""

    @property
    def user(self) -> str:
        """This user's name."""

    @property
    def kernel(self) -> tuple[int, ...]:
        """The leading numbers of the kernel's version."""

    @property
    def python(self) -> str:
        """The interpreter: its version and path."""

    def read(self, path: str) -> str | None:
        """Return the text of a file, or ``None`` if it cannot be read."""

    def has(self, program: str) -> bool:
        """Whether a program is installed."""

    def succeeds(self, argv: Sequence[str]) -> bool:
        """Run a short command, and return whether it succeeded."""

    def runtime(self, name: str) -> OciRuntime:
        """Return an OCI runtime. Raises :class:`EngineError` if it is missing or does not work."""

    def init(self) -> Path:
        """Return the path of the init program for sandboxes. Raises :class:`EngineError`."""

    def libseccomp(self) -> str:
        """Return the version of libseccomp. Raises :class:`EngineError` if it cannot be loaded."""

    def cgroups(self) -> tuple[str, tuple[str, ...]]:
        """Return the layout of cgroups, and the names of the controllers that the oci driver can use.

        The layout is ``v1``, ``v2``, ``hybrid of v1 and v2``, or empty.
        """

    def isolation(self) -> Isolation:
        """Return what the oci driver enforces in a test sandbox. Raises :class:`EngineError`."""

    def engine(self) -> EngineFacts:
        """Return facts about the Docker Engine. Raises :class:`EngineError`."""

    def chosen(self) -> tuple[DriverInfo, str]:
        """Return the driver that ``auto`` chooses, and why. Raises :class:`EngineError`."""

    def store(self) -> Path:
        """Return the directory of the image store."""

    def here(self) -> Path:
        """Return the current directory."""

    def free_bytes(self, path: Path) -> int:
        """Return the free bytes of the file system of ``path``, which need not exist."""

    def may_write(self, path: Path) -> bool:
        """Whether this user may write to ``path``, or create it."""

    def base_images(self) -> tuple[str, ...]:
        """Return the references of SecureBench's own images."""

    def is_stored(self, reference: str) -> bool:
        """Whether the image store has the image ``reference``."""

    def engine_has(self, reference: str) -> bool:
        """Whether Docker Engine has the image ``reference``. Raises :class:`EngineError`."""

    def registry(self) -> str:
        """Return the name of the default registry. Raises :class:`ImageError` if it does not answer."""

    def agents(self) -> tuple[str, ...]:
        """Return the names of the agent programs."""

    def has_agent(self, name: str) -> bool:
        """Whether an agent program is installed, in its default version. Raises :class:`InfrastructureError`."""

    def npm_registry(self) -> str:
        """Return the name of the npm registry. Raises :class:`InfrastructureError` if it does not answer."""

    def package_mirror(self) -> str:
        """Return the address of this machine's package mirror. Raises ``OSError`` or ``LookupError``."""

    def capacity(self) -> Capacity:
        """Return the resources that a run in the current directory can use."""

    def clock(self) -> ClockFacts:
        """Return facts about the clock."""
