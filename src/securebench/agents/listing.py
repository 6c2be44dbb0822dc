"""List the programs in the cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from securebench.agents import manifest
from securebench.agents.catalogue import PROGRAMS
from securebench.agents.installing import FILES
from securebench.agents.model import AgentProgram

if TYPE_CHECKING:
    from securebench.agents.manifest import ProgramManifest
    from securebench.agents.places import ProgramKey, ProgramPaths


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """A program in the cache. ``size_bytes`` is the size of its files, ``installed_at`` in seconds since 1970.

    ``source`` is ``registry`` or ``file``; ``pinned``: it is the default version. A program that is not ``intact`` is
    installed again when it is needed, and its other fields may be wrong.
    """

    program: AgentProgram
    size_bytes: int = 0
    installed_at: float = 0.0
    source: str = ""
    pinned: bool = False
    intact: bool = False


def describe(places: ProgramPaths, key: ProgramKey, *, verify: bool) -> Installed:
    """Describe a program in any state. With ``verify`` all its files are read."""
    there = manifest.read(places.program(key))
    if there is None:
        nothing = manifest.ProgramManifest(integrity="", executable="", source="", installed_at=0.0, files=())
        return Installed(program=program_at(places, key, nothing))
    look = there.is_right if verify else there.is_untouched
    return Installed(
        program=program_at(places, key, there),
        size_bytes=there.size_bytes,
        installed_at=there.installed_at,
        source=there.source,
        pinned=key.name in PROGRAMS and PROGRAMS[key.name].pinned == key.version,
        intact=look(places.program(key) / FILES),
    )


def program_at(places: ProgramPaths, key: ProgramKey, there: ProgramManifest) -> AgentProgram:
    """Return a program in the form that runs use."""
    return AgentProgram(
        name=key.name,
        version=key.version,
        platform=key.platform,
        integrity=there.integrity,
        directory=places.program(key) / FILES,
        executable=there.executable,
    )
