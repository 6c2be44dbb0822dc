"""Install one version of an agent program for all images of a run, and test that it starts.

Programs are asked for their version in a sandbox, never on the host.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from securebench.agents.catalogue import LATEST, find
from securebench.agents.compatibility import choose_platform, require_fit
from securebench.agents.declaration import AgentDeclaration
from securebench.agents.progress import lines
from securebench.errors import ConfigError
from securebench.harnesses.provider.program.runtime import prepare_runtime
from securebench.printable import printable_name
from securebench.sandboxes.base import BASE_ENVIRONMENT, Command, Mount, SandboxSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.agents.model import AgentProgram
    from securebench.agents.store import AgentStore
    from securebench.harnesses.base import RunContext
    from securebench.harnesses.provider.program.runtime import AgentRuntime
    from securebench.images.model import ResolvedImage
    from securebench.resources import JsonValue
    from securebench.sandboxes.base import CommandResult

VERSION_SECONDS: Final = 60.0
"""Time limit in seconds for printing the version. On an idle machine, printing takes less than one second."""

_MAX_LENGTH: Final = 200


@dataclass(frozen=True, slots=True)
class Installation:
    """The program installed for each image, by image reference. All programs have the same version.

    ``runtime`` is the Python or Node.js that runs the program, if it needs one.
    """

    programs: Mapping[str, AgentProgram]
    runtime: AgentRuntime | None = None

    def identity(self) -> dict[str, JsonValue]:
        """Return the program's identity: equal values mean the same program."""
        by_platform = {program.platform: program for program in self.programs.values()}
        integrity: dict[str, JsonValue] = {name: by_platform[name].integrity for name in sorted(by_platform)}
        return {"version": self.version, "integrity": integrity, **(self.runtime.identity if self.runtime else {})}

    @property
    def version(self) -> str:
        """The version, empty if there is no image."""
        return next((program.version for program in self.programs.values()), "")


def install(store: AgentStore, name: str, version: str | None, run: RunContext, target: str) -> Installation:
    """Install a program for all images of a run.

    A program whose declaration has a ``version_line`` is started once per platform, mounted at ``target``. ``latest``
    is resolved when the run begins. Raises :class:`ConfigError` (``agent-unfit``), :class:`InfrastructureError` and the
    errors of :meth:`AgentStore.install`.
    """
    wanted, kind = _version(name, version, run.agent), find(name).runtime
    runtime = None if kind is None else prepare_runtime(kind, store, run)
    programs: dict[str, AgentProgram] = {}
    checked: set[str] = set()
    for image in run.images:
        program = _install(store, name, wanted, run, image)
        wanted = program.version
        programs[image.reference] = program
        if program.platform not in checked and find(name).declared.version_line:
            _require_start(program, runtime, run, Mount(program.directory, target), image)
            checked.add(program.platform)
    return Installation(programs, runtime)


def _version(name: str, version: str | None, earlier: Mapping[str, JsonValue]) -> str | None:
    """Return the version to install; ``None`` means the pinned one.

    A resumed run keeps the version that ``latest`` was resolved to at first.
    """
    known = earlier.get("version")
    if version == LATEST and earlier.get("program") == name and isinstance(known, str):
        return known
    return version


def _install(store: AgentStore, name: str, version: str | None, run: RunContext, image: ResolvedImage) -> AgentProgram:
    with run.driver.image_tree(image) as lease:
        platform = choose_platform(name, lease.root, image=f"the image {image.reference}")
        program = store.install(name, version, platform, lines(run.notify))
        require_fit(program, lease.root, image=f"the image {image.reference}")
    return program


def _require_start(
    program: AgentProgram, runtime: AgentRuntime | None, run: RunContext, mount: Mount, image: ResolvedImage
) -> None:
    mounts = (mount, *(runtime.mounts if runtime else ()))
    spec = SandboxSpec(image=image, mounts=mounts, environment={**BASE_ENVIRONMENT, **_constants(program.name)})
    prefix = runtime.command if runtime else ()
    command = Command(argv=(*prefix, *version_command(program, mount.target)), timeout_seconds=VERSION_SECONDS)
    with run.driver.create(spec) as sandbox:
        require_version(program, sandbox.run(command), f"the image {image.reference}")


def _constants(name: str) -> dict[str, str]:
    """Return the declared variables that are the same in every run. The program may need them to start."""
    declared = find(name).declared
    items = declared.environment.items() if isinstance(declared, AgentDeclaration) else ()
    return {name: value for name, value in items if isinstance(value, str) and "{" not in value}


def version_command(program: AgentProgram, mount_target: str) -> tuple[str, ...]:
    """Return the argv that prints the version of a program whose directory is mounted at ``mount_target``."""
    return (f"{mount_target}/{program.executable}", "--version")


def parse_version(name: str, stdout: bytes | str) -> str:
    """Return the version that a program printed, or an empty string if the output has another format.

    Raises :class:`ConfigError` (``agent-unknown``).
    """
    text = os.fsdecode(stdout[:_MAX_LENGTH]).strip()
    found = re.fullmatch(find(name).declared.version_line or "(.*)", text)
    return found[1] if found else ""


def require_version(program: AgentProgram, result: CommandResult, image: str = "the image") -> None:
    """Raise :class:`ConfigError` (``agent-unfit``) unless ``program`` exited with 0 and printed its exact version."""
    if result.exit_code == 0 and parse_version(program.name, result.stdout) == program.version:
        return
    output = printable_name(b" ".join((result.stderr or result.stdout).split()))
    ended = "it timed out" if result.timed_out else f"exit {result.exit_code}"
    raise ConfigError(
        f"{program.name} does not start in {image}, or is not version {program.version}: {ended}, {output!r}",
        code="agent-unfit",
        hint="see what the program printed; a library in the image may be missing or outdated",
    )
