"""Agent programs in the image store: one copy of each version and platform, shared by all runs of a user.

Each program is stored as an image whose only layer is the program's archive. Other images in the store are never
treated as programs.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import replace
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from securebench.agents.catalogue import LATEST, PROGRAMS, check_version, find, machine_platform
from securebench.agents.incoming import add_program, receive, require_integrity
from securebench.agents.model import AgentProgram, Installed, ProgramKey, Removal, StoredProgram
from securebench.agents.progress import InstallStage, Progress
from securebench.agents.pypi import write_archive
from securebench.agents.registry import NpmRegistry, PackageRelease
from securebench.errors import ConfigError, ImageError, InfrastructureError
from securebench.fs.streams import chunks
from securebench.images.store.image_store import ImageStore
from securebench.images.store.index import ImageSource, Origin
from securebench.strict_input.files import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from securebench.agents.catalogue import KnownProgram
    from securebench.agents.incoming import Arrived
    from securebench.agents.progress import OnProgress
    from securebench.images.store.image_store import TreeLease
    from securebench.images.store.incoming import Incoming

_IN_USE: Final = "image-in-use"


class _Held(NamedTuple):
    """A program that a store returned. It cannot be removed until the lease is closed."""

    program: AgentProgram
    image_id: str
    lease: TreeLease


class AgentStore:
    """The programs in ``images``, by default this user's store. ``registry`` is by default the configured one.

    Several processes and threads may use a store at once. A program that :meth:`install` or :meth:`install_file`
    returned cannot be removed before :meth:`close` or the end of the process. All methods may also raise the errors of
    :class:`ImageStore`.
    """

    def __init__(self, images: ImageStore | None = None, registry: NpmRegistry | None = None) -> None:
        self.images = images or ImageStore()
        self._registry = registry
        self._held: dict[ProgramKey, _Held] = {}

    def close(self) -> None:
        """Release the programs that :meth:`install` and :meth:`install_file` returned. Idempotent."""
        while self._held:
            self._held.popitem()[1].lease.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def references(self) -> tuple[str, ...]:
        """The references of the images of all programs that this object protects from removal."""
        return tuple(key.reference for key in self._held)

    def resolve(self, name: str, version: str | None = None, platform: str | None = None) -> PackageRelease:
        """Return the exact version that ``version`` stands for, and the integrity of its archive.

        For a program from PyPI, the integrity is that of its requirements file. If ``version`` is ``None``, it stands
        for the pinned version. The registry is asked only for ``latest``, and for versions that are neither pinned nor
        installed. Raises :class:`ConfigError` (``agent-unknown``, ``agent-unknown-version``, ``agent-unfit``,
        ``agent-unavailable``), :class:`InfrastructureError` (``agent-unavailable``, ``agent-integrity``), and the
        errors of :meth:`KnownProgram.variant`.
        """
        known = find(name)
        variant = known.variant(platform or machine_platform())
        if not known.package:
            if version in {None, known.pinned}:
                return PackageRelease(known.pinned, variant.integrity)
            raise ConfigError(
                f"{name} is available only in version {known.pinned}, because it does not come from npm",
                code="agent-unknown-version",
                hint="leave out the version, or change it in the declaration",
            )
        if version == LATEST:
            version = self._npm.release(known.package, LATEST).version
        version = check_version(version or known.pinned)
        if version == known.pinned:
            return PackageRelease(version, variant.integrity)
        if (found := self._find(ProgramKey(name, version, variant.platform))) is not None:
            return PackageRelease(version, found[1].integrity)
        return PackageRelease(version, self._npm.release(variant.package, version + variant.suffix).integrity)

    def install(
        self,
        name: str,
        version: str | None = None,
        platform: str | None = None,
        on_progress: OnProgress | None = None,
    ) -> AgentProgram:
        """Return a program, and install it first if necessary. Raises the same errors as :meth:`resolve`.

        In addition, raises :class:`InfrastructureError` if the archive is wrong (``agent-integrity``,
        ``agent-unusable``), and if the installed program is damaged but a run uses it (``agent-in-use``). For a program
        that does not come from npm, also raises the errors of :func:`write_archive` or :func:`open_regular`.
        """
        platform = platform or machine_platform()
        held = self._held.get(ProgramKey(name, version or find(name).pinned, platform))
        if held and self.images.is_intact(held.image_id):
            return held.program
        release = self.resolve(name, version, platform)
        key = ProgramKey(name, release.version, platform)
        if (program := self._take(key, release.integrity)) is not None:
            return program
        on_progress = on_progress or _quiet
        with self._installing(key, on_progress):
            program = self._take(key, release.integrity) or self._download(key, release, on_progress)
        on_progress(Progress(str(key), InstallStage.INSTALLED))
        return program

    def install_file(self, path: Path, name: str = "", on_progress: OnProgress | None = None) -> AgentProgram:
        """Install a program from an archive file, and return it.

        An npm package identifies its program. If ``name`` is given, it must be the name of this program. Other archives
        need ``name``.

        An archive of the pinned version must have the pinned hash. Raises :class:`ConfigError`
        (``file-missing`` and the like, ``agent-unknown``, ``agent-unknown-version``) and :class:`InfrastructureError`
        as :meth:`install` does.
        """
        on_progress = on_progress or _quiet
        with open_regular(path, "archive", follow=True) as file, self._incoming() as incoming:
            arrived = receive(incoming, chunks(file), path.name, on_progress)
            key = ProgramKey(name, find(name).pinned, machine_platform()) if name and not find(name).package else None
            image_id, key = add_program(incoming, arrived, "file", key=key)
            _check_file(key, arrived, name)
            with self._installing(key, on_progress):
                program = self._take(key, arrived.integrity)
                program = program or self._finish(incoming, image_id, key, arrived.integrity, on_progress)
        on_progress(Progress(str(key), InstallStage.INSTALLED))
        return program

    def installed(self, *, verify: bool = False) -> tuple[Installed, ...]:
        """Return the installed programs, sorted. ``verify`` checks the content of all files, not only metadata."""
        found = []
        for entry in self.images.entries():
            stored = self._stored(entry.reference) if entry.source is ImageSource.AGENT else None
            if stored is not None:
                installed = Installed(
                    program=_program(stored, self.images.tree(entry.id)),
                    size_bytes=entry.tree_bytes,
                    installed_at=entry.added_at,
                    source=stored.source,
                    pinned=_pinned(stored.name) == stored.version,
                    intact=self.images.is_intact(entry.id, thorough=verify),
                )
                found.append((stored.key, installed))
        return tuple(installed for _, installed in sorted(found, key=lambda pair: pair[0]))

    def remove(self, name: str, version: str | None = None, platform: str | None = None) -> Removal:
        """Remove a program, except versions in use by a run. ``None`` means all versions or platforms.

        A program whose declaration was deleted can be removed, too. Raises :class:`ConfigError`
        (``agent-unknown``; ``agent-unknown-version`` if nothing matches).
        """
        programs = (entry.program for entry in self.installed())
        keys = [ProgramKey(program.name, program.version, program.platform) for program in programs]
        if all(key.name != name for key in keys):
            find(name)
        selected = tuple(
            key
            for key in keys
            if key.name == name and version in {None, key.version} and platform in {None, key.platform}
        )
        if not selected:
            raise ConfigError(
                f"{' '.join(filter(None, (name, version, platform)))} is not installed",
                code="agent-unknown-version",
                hint="'securebench agents list' lists the installed programs",
            )
        removed: list[ProgramKey] = []
        in_use: list[ProgramKey] = []
        for key in selected:
            try:
                self.images.remove(key.reference)
            except ImageError as error:
                if error.code != _IN_USE:
                    raise
                in_use.append(key)
            else:
                removed.append(key)
        return Removal(tuple(removed), tuple(in_use))

    @property
    def _npm(self) -> NpmRegistry:
        if self._registry is None:
            self._registry = NpmRegistry()
        return self._registry

    def _incoming(self) -> AbstractContextManager[Incoming]:
        return self.images.incoming(Origin(ImageSource.AGENT))

    def _find(self, key: ProgramKey) -> tuple[str, StoredProgram] | None:
        """Return the image id and labels of a program, even if it is damaged, or ``None`` if it is not installed."""
        stored = self._stored(key.reference)
        image = self.images.find(key.reference)
        return (image.id, stored) if image and stored and stored.key == key else None

    def _stored(self, reference: str) -> StoredProgram | None:
        """Return the labels of the program with this image reference, or ``None`` if there is no such program."""
        origin = self.images.origin(reference)
        if origin is None or origin.source is not ImageSource.AGENT:
            return None  # an image of a pack is not a program, even if it has a program's reference
        return StoredProgram.from_labels(self.images.labels(reference))

    def _take(self, key: ProgramKey, integrity: str) -> AgentProgram | None:
        """Return an installed program, and protect it from removal until :meth:`close`.

        Returns ``None`` if no program with this key and integrity is installed. If the unpacked files have changed, the
        archive is unpacked again. If the archive is damaged as well, returns ``None``.
        """
        found = self._find(key)
        if found is None or found[1].integrity != integrity:
            return None
        image_id, stored = found
        try:
            with _explaining_use(key):
                self.images.restore(image_id)
            lease = self.images.lease(image_id)
        except ImageError:
            return None
        program = _program(stored, lease.root)
        if self._held.setdefault(key, _Held(program, image_id, lease)).lease is not lease:
            lease.close()  # one lease per program is enough, however many images a run has
        return program

    def _download(self, key: ProgramKey, release: PackageRelease, on_progress: OnProgress) -> AgentProgram:
        known = find(key.name)
        with self._incoming() as incoming:
            if not known.package:
                arrived = self._receive_declared(incoming, known, str(key), on_progress)
                image_id, found = add_program(incoming, arrived, "declaration", key=key)
            else:
                variant = known.variant(key.platform)
                packed = PackageRelease(release.version + variant.suffix, release.integrity)
                with self._npm.archive(variant.package, packed) as pieces:
                    arrived = receive(incoming, pieces, str(key), on_progress)
                image_id, found = add_program(incoming, arrived, "registry", key.name)
            if found != key:
                raise InfrastructureError(
                    f"the archive of {key} contains {found}", code="agent-unusable", hint="the download was discarded"
                )
            return self._finish(incoming, image_id, key, arrived.integrity, on_progress)

    def _receive_declared(self, incoming: Incoming, known: KnownProgram, what: str, on_progress: OnProgress) -> Arrived:
        """Receive a program's archive, which is either the declared file or made from the declared PyPI packages."""
        source, wanted = known.declared.source, known.variants[0].integrity
        if source.archive is not None:
            with open_regular(source.archive, "archive", follow=True) as file:
                arrived = receive(incoming, chunks(file), what, on_progress)
            declare = f"to accept this archive, set 'integrity: {arrived.integrity}' in {known.path}"
            require_integrity(arrived, wanted, what, declare)
            return arrived
        on_progress(Progress(what, InstallStage.DOWNLOADING))
        with TemporaryFile() as file:
            write_archive(source, file)
            file.seek(0)
            return replace(receive(incoming, chunks(file), what, on_progress), integrity=wanted)

    def _finish(
        self, incoming: Incoming, image_id: str, key: ProgramKey, integrity: str, on_progress: OnProgress
    ) -> AgentProgram:
        """Unpack an added image, give it the program's reference, and return the program.

        Any other image that has this reference loses it.
        """
        on_progress(Progress(str(key), InstallStage.UNPACKING))
        self.images.lease(image_id).close()
        incoming.name(image_id, key.reference)
        program = self._take(key, integrity)
        if program is None:
            raise InfrastructureError(
                f"{key} was changed during its installation",
                code="agent-unusable",
                hint="check which other program writes to the image store",
            )
        return program

    @contextmanager
    def _installing(self, key: ProgramKey, on_progress: OnProgress) -> Iterator[None]:
        """Hold a lock, so that only one process at a time installs the program."""
        with self.images.locked(
            f"install-{'-'.join(key)}", lambda: on_progress(Progress(str(key), InstallStage.WAITING))
        ):
            yield


def in_use_error(keys: Iterable[ProgramKey]) -> InfrastructureError:
    """Return the error for programs that were neither removed nor replaced, because runs use them."""
    return InfrastructureError(
        f"a run uses {', '.join(map(str, keys))}", code="agent-in-use", hint="wait for the run to end, or stop it"
    )


def _program(stored: StoredProgram, tree: Path) -> AgentProgram:
    return AgentProgram(
        **stored.key._asdict(),
        integrity=stored.integrity,
        directory=(tree / stored.top).resolve(),  # a mount's source must not contain a link
        executable=stored.executable,
    )


def _pinned(name: str) -> str | None:
    """Return the pinned version of a program, or ``None`` if its declaration is missing or invalid."""
    with suppress(ConfigError):
        return PROGRAMS[name].pinned if name in PROGRAMS else None
    return None


def _check_file(key: ProgramKey, arrived: Arrived, name: str) -> None:
    known = find(key.name)
    if name not in {"", key.name}:
        raise ConfigError(f"the archive contains {key}, not {name}", code="agent-unknown")
    if key.version == known.pinned:
        require_integrity(arrived, known.variant(key.platform).integrity, str(key))


@contextmanager
def _explaining_use(key: ProgramKey) -> Iterator[None]:
    try:
        yield
    except ImageError as error:
        if error.code != _IN_USE:
            raise
        raise in_use_error([key]) from None


def _quiet(_progress: Progress) -> None:
    """Ignore progress."""
