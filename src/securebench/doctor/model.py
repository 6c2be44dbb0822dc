"""What is found, and what the machine is asked for it."""

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


class State(StrEnum):
    """How it is about one thing."""

    OK = "ok"
    WEAKER = "weaker"
    """It is there, and less than it could be."""
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing: its state, what was ``found``, what that means, and the command that mends it, or nothing."""

    name: str
    state: State
    found: str
    meaning: str = ""
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """All that was found, in the order in which it is shown.

    ``driver`` is what ``auto`` takes; empty: nothing. ``can_run``: whether any driver makes sandboxes here, be it one
    that has to be asked for by name.
    """

    findings: tuple[Finding, ...]
    driver: str
    can_run: bool


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """A Docker Engine that answered: where, what it says of itself, and its runtimes by name."""

    url: str
    info: DriverInfo
    runtimes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClockFacts:
    """The clock, in seconds: now, the time that a file gets which is written now, and the latest of our own files.

    ``jumped`` is by how much it went otherwise than the clock that is never set, while it was looked at.
    """

    now: float
    written: float
    installed: float
    jumped: float


class Machine(Protocol):
    """What checks ask, so that a test can be any machine. Whatever it cannot tell raises: an error says why."""

    @property
    def is_root(self) -> bool:
        """Whether this user is root."""

    @property
    def user(self) -> str:
        """This user's name."""

    @property
    def kernel(self) -> tuple[int, ...]:
        """The kernel's version: its leading numbers."""

    @property
    def python(self) -> str:
        """The interpreter: its version and path."""

    def read(self, path: str) -> str | None:
        """Return the text of a file, or ``None`` if it is not there or not to be read."""

    def has(self, program: str) -> bool:
        """Whether a program is installed."""

    def succeeds(self, argv: Sequence[str]) -> bool:
        """Run a short command, and say whether it ended well."""

    def runtime(self, name: str) -> OciRuntime:
        """Return an OCI runtime. Raises :class:`EngineError` if it is not there, or does not work."""

    def init(self) -> Path:
        """Return the init for sandboxes. Raises :class:`EngineError`."""

    def libseccomp(self) -> str:
        """Return the library's version. Raises :class:`EngineError`."""

    def cgroups(self) -> tuple[str, tuple[str, ...]]:
        """Return the layout (``v1``, ``v2``, ``hybrid``, or empty), and the controllers that can be used."""

    def isolation(self) -> Isolation:
        """Return what the oci driver proves. Raises :class:`EngineError`."""

    def engine(self) -> EngineFacts:
        """Return the Docker Engine. Raises :class:`EngineError`."""

    def chosen(self) -> tuple[DriverInfo, str]:
        """Return the driver that ``auto`` takes, and what it says of that. Raises :class:`EngineError`."""

    def store(self) -> Path:
        """Return where images are kept."""

    def here(self) -> Path:
        """Return the current directory."""

    def free_bytes(self, path: Path) -> int:
        """Return the free space where ``path`` is, or will be."""

    def may_write(self, path: Path) -> bool:
        """Whether this user may write to ``path``, or make it."""

    def base_images(self) -> tuple[str, ...]:
        """Return the references of the project's own images."""

    def is_stored(self, reference: str) -> bool:
        """Whether the image store has an image."""

    def engine_has(self, reference: str) -> bool:
        """Whether the engine has an image. Raises :class:`EngineError`."""

    def registry(self) -> str:
        """Return the name of the default registry, which answers. Raises :class:`ImageError`."""

    def agents(self) -> tuple[str, ...]:
        """Return the names of the agent programs."""

    def has_agent(self, name: str) -> bool:
        """Whether the version that a run takes by default is installed. Raises :class:`InfrastructureError`."""

    def npm_registry(self) -> str:
        """Return the name of the npm registry, which answers. Raises :class:`InfrastructureError`."""

    def package_mirror(self) -> str:
        """Return the address of a package mirror of this machine, which answers. Raises ``OSError``."""

    def clock(self) -> ClockFacts:
        """Return what can be told of the clock."""
