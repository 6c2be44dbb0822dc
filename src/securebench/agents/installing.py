"""One installation: an archive is copied to a temporary directory, checked, unpacked, and moved into place."""

from __future__ import annotations

import base64
import hashlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from securebench.agents import manifest
from securebench.agents.catalogue import PROGRAMS, check_version
from securebench.agents.manifest import ProgramManifest
from securebench.agents.package import describe, unpack, unusable
from securebench.agents.places import ProgramKey
from securebench.agents.progress import InstallStage, Teller
from securebench.errors import ConfigError, InfrastructureError
from securebench.fs.durable import sync_directory, write_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from securebench.agents.catalogue import Variant
    from securebench.agents.progress import OnProgress
    from securebench.http.download import Download

FILES: Final = "files"
"""The directory of a program's own files, beside its manifest."""
_PROGRAM: Final = "program"
_ARCHIVE: Final = "archive.tgz"
_READABLE: Final = 0o755


@dataclass(frozen=True, slots=True)
class Arrived:
    """A complete archive in a temporary directory, and its sha512 as npm writes it."""

    path: Path
    integrity: str


def download(pieces: Download, work: Path, what: str, on_progress: OnProgress) -> Arrived:
    """Download an archive to ``work``. Raises the errors of ``pieces`` and ``OSError``."""
    teller = Teller(on_progress, what, InstallStage.DOWNLOADING)
    return _arrive(pieces, work, lambda piece: teller.add(len(piece), pieces.size))


def copy(pieces: Iterable[bytes], work: Path, what: str, on_progress: OnProgress) -> Arrived:
    """Copy a local archive into ``work``, so that nobody can change it between the check and unpacking."""
    teller = Teller(on_progress, what, InstallStage.READING)
    return _arrive(pieces, work, lambda piece: teller.add(len(piece)))


def _arrive(pieces: Iterable[bytes], work: Path, on_piece: Callable[[bytes], None]) -> Arrived:
    digest = hashlib.sha512()
    path = work / _ARCHIVE
    with path.open("xb", buffering=0) as file:
        for piece in pieces:
            digest.update(piece)
            write_all(file.fileno(), piece)
            on_piece(piece)
    return Arrived(path, f"sha512-{base64.b64encode(digest.digest()).decode()}")


def require_integrity(arrived: Arrived, wanted: str, what: str) -> None:
    """Raise :class:`InfrastructureError` (``agent-integrity``) unless the archive has the integrity ``wanted``."""
    if arrived.integrity != wanted:
        raise InfrastructureError(
            f"the archive of {what} has the integrity {arrived.integrity}, not {wanted}",
            code="agent-integrity",
            hint="the file is incomplete, damaged or was replaced; nothing of it was kept",
        )


def prepare(arrived: Arrived, source: str, what: str, on_progress: OnProgress) -> tuple[ProgramKey, Path]:
    """Unpack an archive, and return the program's key and its directory, which is ready to be moved.

    Raises :class:`InfrastructureError` (``agent-unusable``), :class:`ConfigError` (``agent-unknown``), ``OSError``.
    """
    directory = arrived.path.parent / _PROGRAM
    directory.mkdir(mode=_READABLE)
    directory.chmod(_READABLE)
    root = directory / FILES
    files = unpack(arrived.path, root, what, on_progress)
    key, variant = _identify(*describe(root, what))
    known = manifest.known_files(root, files)
    if not any(file.path == variant.executable and file.mode & 0o111 for file in known):
        raise unusable(what, f"it has no executable {variant.executable}")
    ProgramManifest(
        integrity=arrived.integrity,
        executable=variant.executable,
        source=source,
        installed_at=time.time(),
        files=known,
    ).write(directory)
    (directory / manifest.FILE).chmod(0o644)
    sync_directory(directory)
    return key, directory


def _identify(package: str, version: str) -> tuple[ProgramKey, Variant]:
    """Return the program for a package name and version."""
    for known in PROGRAMS.values():
        for variant in known.variants:
            if package == variant.package and version.endswith(variant.suffix):
                return ProgramKey(
                    known.name, check_version(version.removesuffix(variant.suffix)), variant.platform
                ), variant
    packages = sorted(
        {f"{variant.package}@VERSION{variant.suffix}" for known in PROGRAMS.values() for variant in known.variants}
    )
    raise ConfigError(
        f"the package {package!r} {version!r} is not an agent program for any platform",
        code="agent-unknown",
        hint=f"one of {', '.join(packages)}",
    )
