"""Install an agent program for a run: one version, compatible with each image, and test that it starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from securebench.agents.catalogue import LATEST
from securebench.agents.check import VERSION_SECONDS, require_version, version_command
from securebench.agents.compatibility import choose_platform, require_fit
from securebench.agents.progress import lines
from securebench.sandboxes.base import Command, Mount, SandboxSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.agents.model import AgentProgram
    from securebench.agents.store import AgentStore
    from securebench.harnesses.base import RunContext
    from securebench.images.model import ResolvedImage
    from securebench.resources import JsonValue


@dataclass(frozen=True, slots=True)
class Installation:
    """The installed program of each image, by image reference. All have the same version."""

    programs: Mapping[str, AgentProgram]

    def identity(self) -> dict[str, JsonValue]:
        """Return the program's identity: equal values mean the same program."""
        by_platform = {program.platform: program for program in self.programs.values()}
        integrity: dict[str, JsonValue] = {name: by_platform[name].integrity for name in sorted(by_platform)}
        return {"version": self.version, "integrity": integrity}

    @property
    def version(self) -> str:
        """The version, empty if there is no image."""
        return next((program.version for program in self.programs.values()), "")


def install(store: AgentStore, name: str, version: str | None, run: RunContext, target: str) -> Installation:
    """Install a program for all images of a run, and start it once per platform, mounted at ``target``.

    ``latest`` is resolved when the run begins. Raises :class:`ConfigError` (``agent-unfit`` and the errors of the
    image store) and :class:`InfrastructureError`.
    """
    wanted = _version(name, version, run.agent)
    programs: dict[str, AgentProgram] = {}
    checked: set[str] = set()
    for image in run.images:
        program = _install(store, name, wanted, run, image)
        wanted = program.version
        programs[image.reference] = program
        if program.platform not in checked:
            _require_start(program, run, image, target)
            checked.add(program.platform)
    return Installation(programs)


def _version(name: str, version: str | None, earlier: Mapping[str, JsonValue]) -> str | None:
    """Return the version to install. A resumed run keeps the version that ``latest`` was resolved to at first."""
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


def _require_start(program: AgentProgram, run: RunContext, image: ResolvedImage, target: str) -> None:
    spec = SandboxSpec(image=image, mounts=(Mount(program.directory, target),))
    command = Command(argv=version_command(program, target), timeout_seconds=VERSION_SECONDS)
    with run.driver.create(spec) as sandbox:
        require_version(program, sandbox.run(command), f"the image {image.reference}")
