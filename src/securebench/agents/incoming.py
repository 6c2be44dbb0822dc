"""Import the archive of a program into the image store, where it becomes the only layer of an image."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from securebench.agents.catalogue import PROGRAMS, check_version, find, machine_platform
from securebench.agents.model import ProgramKey, StoredProgram, integrity_of
from securebench.agents.package import inspect, unusable
from securebench.agents.progress import InstallStage, ProgressReporter
from securebench.errors import ConfigError, InfrastructureError
from securebench.http.download import Download
from securebench.images.store.archive import RootConfig, root_config
from securebench.images.store.archive_files import layer_type
from securebench.printable import printable_line

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from securebench.agents.package import Package
    from securebench.agents.progress import OnProgress
    from securebench.images.layout import Descriptor
    from securebench.images.store.incoming import Incoming


_SHOWN: Final = 8
"""Maximum number of an archive's files that a message lists."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """A complete archive that is in the store, but not yet used by an image. ``what`` names it in errors.

    ``integrity`` is its sha512 digest, as npm writes it. For a program from PyPI, it is that of the requirements file.
    """

    blob: Descriptor
    integrity: str
    what: str


def receive(incoming: Incoming, pieces: Iterable[bytes], what: str, on_progress: OnProgress) -> Arrived:
    """Copy an archive into the store, from a download or from a file.

    A file is copied so that nobody can change it between the check and unpacking.

    Raises the errors of ``pieces``, :class:`ImageError` (``image-store-unusable``) and :class:`DiskFullError`.
    """
    digest = hashlib.sha512()

    def hashed() -> Iterator[bytes]:
        is_download = isinstance(pieces, Download)
        reporter = ProgressReporter(
            on_progress, what, InstallStage.DOWNLOADING if is_download else InstallStage.READING
        )
        for piece in pieces:
            digest.update(piece)
            reporter.add(len(piece), pieces.size if isinstance(pieces, Download) else 0)
            yield piece

    blob = incoming.take(hashed())
    return Arrived(blob, integrity_of(digest.digest()), what)


def require_integrity(arrived: Arrived, wanted: str, what: str, hint: str = "") -> None:
    """Raise :class:`InfrastructureError` (``agent-integrity``) unless the archive has the integrity ``wanted``."""
    if arrived.integrity != wanted:
        problem = "the archive changed or is damaged"
        raise InfrastructureError(
            f"the archive of {what} has the integrity {arrived.integrity}, not {wanted}",
            code="agent-integrity",
            hint="; ".join(filter(None, (problem, hint))),
        )


def add_program(
    incoming: Incoming, arrived: Arrived, source: str, name: str = "", *, key: ProgramKey | None = None
) -> tuple[str, ProgramKey]:
    """Add an image made from an archive, and return the image's id and the program's key.

    The image has no reference yet. An npm package identifies its program. If ``name`` is given, it must be the name of
    this program. Other archives need a ``key``.

    Raises :class:`InfrastructureError` (``agent-unusable``), :class:`ConfigError` (``agent-unknown``,
    ``agent-unknown-version``), the errors of :meth:`Incoming.add`, and ``OSError``.
    """
    package = inspect(incoming.path(arrived.blob.digest), arrived.what, is_npm=key is None)
    key = key or _identify(package.name, package.version, name)
    known = find(key.name)
    executable = known.variant(key.platform).executable
    if executable not in (found := package.files if known.runtime else package.executables):
        raise _without_executable(arrived.what, executable, package, found)
    program = StoredProgram(
        **key._asdict(), integrity=arrived.integrity, executable=executable, source=source, top=package.top
    )
    config = root_config(RootConfig(labels=program.labels()), package.digest)
    layer = replace(arrived.blob, media_type=layer_type(incoming, arrived.blob))
    return incoming.add(config, [layer]), key


def _without_executable(what: str, wanted: str, package: Package, found: Collection[str]) -> InfrastructureError:
    """Return the error for an archive without the declared executable. ``found`` are the files to choose from."""
    if wanted in package.files:
        hint = f"before you pack the archive, run 'chmod a+x' on {package.top}/{wanted}"
        return unusable(what, f"its file {wanted} is not executable", hint)
    names = sorted(found, key=lambda name: (name.count("/"), name))
    listed = ", ".join(map(printable_line, names[:_SHOWN])) + (", ..." if len(names) > _SHOWN else "")
    files = f"Files to choose from: {listed or 'none'}"
    hint = f"in the declaration, set 'executable' to a path below {package.top}/ in the archive. {files}"
    return unusable(what, f"it has no executable {wanted}", hint)


def _identify(package: str, version: str, name: str) -> ProgramKey:
    """Return the key of the program that a package contains.

    If ``name`` is given, the package must contain the program of this name.
    """
    wanted = [find(name)] if name else PROGRAMS.values()
    programs = [known for known in wanted if known.package]
    for known in programs:
        for variant in sorted(known.variants, key=lambda variant: variant.platform != machine_platform()):
            if package == variant.package and version.endswith(variant.suffix):
                return ProgramKey(known.name, check_version(version.removesuffix(variant.suffix)), variant.platform)
    packages = sorted(
        {f"{variant.package}@VERSION{variant.suffix}" for known in programs for variant in known.variants}
    )
    raise ConfigError(
        f"the package {package!r} with the version {version!r} is not an expected agent program",
        code="agent-unknown",
        hint=f"use one of {', '.join(packages)}",
    )
