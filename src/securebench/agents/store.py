"""The agents' cache: one copy of each program version and platform, shared by all runs of a user."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from securebench.agents import installing, manifest
from securebench.agents.catalogue import LATEST, check_version, find, machine_platform
from securebench.agents.installing import FILES
from securebench.agents.listing import describe, program_at
from securebench.agents.places import ProgramKey, ProgramPaths, default_directory, explaining
from securebench.agents.progress import InstallStage, Progress
from securebench.agents.registry import NpmRegistry, PackageRelease
from securebench.errors import ConfigError, InfrastructureError
from securebench.fs.durable import sync_directory
from securebench.fs.locks import take
from securebench.fs.streams import chunks
from securebench.images.store.temporary import changing, temporary_directory
from securebench.strict_input.files import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from securebench.agents.installing import Arrived
    from securebench.agents.listing import Installed
    from securebench.agents.model import AgentProgram
    from securebench.agents.progress import OnProgress


class AgentStore:
    """The cache in ``directory``, by default this user's; programs come from ``registry``, by default npm's.

    Several processes and threads may use a cache at once. Directories are created with the first installation. A
    program returned by this object cannot be removed before :meth:`close` or the end of the process. All methods may
    also raise :class:`InfrastructureError` (``agent-store-unusable``) and :class:`DiskFullError`.
    """

    def __init__(self, directory: Path | None = None, registry: NpmRegistry | None = None) -> None:
        self._places = ProgramPaths((directory or default_directory()).resolve())  # mounts pass through no link
        self._registry = registry
        self._held: dict[ProgramKey, int] = {}

    @property
    def directory(self) -> Path:
        """The directory of the cache."""
        return self._places.top

    def close(self) -> None:
        """Release the programs that this object returned. Idempotent."""
        while self._held:
            os.close(self._held.popitem()[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def resolve(self, name: str, version: str | None = None, platform: str | None = None) -> PackageRelease:
        """Return the exact version and the integrity of its archive.

        ``None`` means the pinned version. The registry is asked only for ``latest``, and for versions that are neither
        pinned nor installed. Raises :class:`ConfigError` (``agent-unknown``, ``agent-unknown-version``) and
        :class:`InfrastructureError` (``agent-unavailable``, ``agent-integrity``).
        """
        known = find(name)
        variant = known.variant(platform or machine_platform())
        if version == LATEST:
            version = self._npm.release(known.package, LATEST).version
        version = check_version(version or known.pinned)
        if version == known.pinned:
            return PackageRelease(version, variant.integrity)
        there = manifest.read(self._places.program(ProgramKey(name, version, variant.platform)))
        if there is not None:
            return PackageRelease(version, there.integrity)
        return PackageRelease(version, self._npm.release(variant.package, version + variant.suffix).integrity)

    def install(
        self,
        name: str,
        version: str | None = None,
        platform: str | None = None,
        on_progress: OnProgress | None = None,
    ) -> AgentProgram:
        """Return a program from the cache, or download it. Raises the same errors as :meth:`resolve`.

        Raises :class:`InfrastructureError` also for an archive that is not what it must be (``agent-integrity``,
        ``agent-unusable``), and for a damaged program that a run uses (``agent-in-use``).
        """
        platform = platform or machine_platform()
        release = self.resolve(name, version, platform)
        key = ProgramKey(name, release.version, platform)
        if (program := self._take(key, release.integrity)) is not None:
            return program
        on_progress = on_progress or _quiet
        self._places.make()
        with explaining(self.directory), self._installing(key, on_progress):
            if (program := self._take(key, release.integrity)) is None:
                self._download(key, release, on_progress)
                program = self._taken(key, release.integrity)
        on_progress(Progress(str(key), InstallStage.INSTALLED))
        return program

    def install_file(self, path: Path, name: str = "", on_progress: OnProgress | None = None) -> AgentProgram:
        """Install the archive of a package that is on this machine, and return the program: that ``name``, if given.

        One of a pinned version must be the one that is pinned. Raises :class:`ConfigError` (``file-missing`` and the
        like, ``agent-unknown``) and :class:`InfrastructureError` as :meth:`install` does.
        """
        on_progress = on_progress or _quiet
        with open_regular(path, "archive", follow=True) as file:
            self._places.make()
            with explaining(self.directory), self._work() as work:
                arrived = installing.copy(chunks(file), work, path.name, on_progress)
                key, directory = installing.prepare(arrived, "file", path.name, on_progress)
                self._check_file(key, arrived, name)
                with self._installing(key, on_progress):
                    program = self._take(key, arrived.integrity)
                    if program is None:
                        self._publish(key, directory)
                        program = self._taken(key, arrived.integrity)
        on_progress(Progress(str(key), InstallStage.INSTALLED))
        return program

    def installed(self, *, verify: bool = False) -> tuple[Installed, ...]:
        """Return the installed programs. With ``verify`` all files are read, otherwise only changed ones."""
        with explaining(self.directory):
            return tuple(describe(self._places, key, verify=verify) for key in self._places.found())

    def remove(self, name: str, version: str | None = None, platform: str | None = None) -> tuple[ProgramKey, ...]:
        """Remove a program, of all versions and platforms unless one is named, and return what that was.

        Raises :class:`ConfigError` (``agent-unknown``, ``agent-unknown-version`` if there is none) and
        :class:`InfrastructureError` (``agent-in-use``).
        """
        find(name)
        with explaining(self.directory):
            selected = [
                key
                for key in self._places.found()
                if key.name == name and version in {None, key.version} and platform in {None, key.platform}
            ]
            if not selected:
                raise ConfigError(
                    f"no {' '.join(filter(None, (name, version, platform)))} is installed",
                    code="agent-unknown-version",
                    hint="'securebench agents list' shows what is",
                )
            self._places.make()
            for key in selected:
                with self._work() as work:
                    self._put_away(key, work)
        return tuple(selected)

    @property
    def _npm(self) -> NpmRegistry:
        if self._registry is None:
            self._registry = NpmRegistry()
        return self._registry

    def _take(self, key: ProgramKey, integrity: str) -> AgentProgram | None:
        """Return an intact installed program and lock it until :meth:`close`, or return ``None``."""
        directory = self._places.program(key)
        with explaining(self.directory):
            if not self._places.has(key):
                return None
            self._places.locks.mkdir(mode=0o700, exist_ok=True)
            held = take(self._places.use_lock(key), shared=True)
        assert held is not None
        there = manifest.read(directory)
        if there is None or there.integrity != integrity or not there.is_untouched(directory / FILES):
            os.close(held)
            return None
        if self._held.setdefault(key, held) != held:
            os.close(held)  # one lock per program is enough, however many images a run has
        return program_at(self._places, key, there)

    def _taken(self, key: ProgramKey, integrity: str) -> AgentProgram:
        program = self._take(key, integrity)
        if program is None:
            raise InfrastructureError(
                f"{key} was changed while it was installed",
                code="agent-unusable",
                hint="check which other program writes to the cache",
            )
        return program

    def _download(self, key: ProgramKey, release: PackageRelease, on_progress: OnProgress) -> None:
        variant = find(key.name).variant(key.platform)
        with self._work() as work:
            packed = PackageRelease(release.version + variant.suffix, release.integrity)
            with self._npm.archive(variant.package, packed) as pieces:
                arrived = installing.download(pieces, work, str(key), on_progress)
            found, directory = installing.prepare(arrived, "registry", str(key), on_progress)
            if found != key:
                raise InfrastructureError(
                    f"the archive of {key} is one of {found}", code="agent-unusable", hint="nothing of it was kept"
                )
            self._publish(key, directory)

    @staticmethod
    def _check_file(key: ProgramKey, arrived: Arrived, name: str) -> None:
        known = find(key.name)
        if name not in {"", key.name}:
            raise ConfigError(f"the archive is one of {key}, and not of {name}", code="agent-unknown")
        if key.version == known.pinned:
            installing.require_integrity(arrived, known.variant(key.platform).integrity, str(key))

    def _publish(self, key: ProgramKey, directory: Path) -> None:
        """Move a finished program to its final path, replacing a damaged one."""
        place = self._places.program(key)
        for above in (place.parent.parent, place.parent):
            above.mkdir(exist_ok=True)
            above.chmod(0o755)
        if place.exists():
            self._put_away(key, directory.parent)
        directory.rename(place)
        for changed in (place.parent, place.parent.parent, self._places.programs):
            sync_directory(changed)

    def _put_away(self, key: ProgramKey, work: Path) -> None:
        """Move an unused program to a work directory, which is deleted with it."""
        held = take(self._places.use_lock(key), wait=False)
        if held is None:
            raise InfrastructureError(
                f"{key} is in use by a run", code="agent-in-use", hint="wait for the run, or stop it"
            )
        try:
            self._places.program(key).rename(work / "old")
        finally:
            os.close(held)

    @contextmanager
    def _work(self) -> Iterator[Path]:
        with changing(self._places) as trash:
            trash.put_abandoned()
        with temporary_directory(self._places) as work:
            yield work

    @contextmanager
    def _installing(self, key: ProgramKey, on_progress: OnProgress) -> Iterator[None]:
        lock = self._places.install_lock(key)
        held = take(lock, wait=False)
        if held is None:
            on_progress(Progress(str(key), InstallStage.WAITING))
            held = take(lock)
        assert held is not None
        try:
            yield
        finally:
            os.close(held)


def _quiet(_progress: Progress) -> None:
    """Ignore progress."""
