"""What workers on other machines need for a run: its settings, its files, its images and its agents' programs.

Files are sent as one tar archive, named by its digest. The store keeps programs as images, too. Images and programs are
sent from the store, named by their image ids. A machine that lacks the archive, an image or a program receives it once,
and verifies its digest.
"""

from __future__ import annotations

import io
import os
import pickle
import threading
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from securebench import plugins
from securebench.errors import ImageError
from securebench.fs.durable import storage_errors
from securebench.fs.rmtree import make_fresh_directory
from securebench.fs.streams import Digester, chunks
from securebench.fs.tree_archive import archive_of
from securebench.images.store.image_store import ImageStore
from securebench.images.store.index import ImageSource
from securebench.plugins import ExtensionKind
from securebench.tester_config import BenchmarkPaths, KeepWorkspaces
from securebench.tester_run.planning.directory import SCRATCH

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from securebench.results.records.commitment import Commitment
    from securebench.results.run_directory.header import RunHeader
    from securebench.tester_config import TesterConfig
    from securebench.tester_run.options import RunOptions
    from securebench.tester_run.worker import PreparedRun

FILES, IMAGE, PROGRAM, CANDIDATE = "files", "image", "program", "candidate"
"""The kinds of content. A name consists of a kind and a digest, plus a reference for images and programs."""

_SHIPMENT: Final = "shipment"
_ARCHIVE: Final = "files.tar"
_OWNER: Final = (0, 0)
_DIGEST: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSettings:
    """The settings of a worker on another machine. They contain secrets."""

    config: TesterConfig
    options: RunOptions
    header: RunHeader
    commitment: Commitment


class Shipment:
    """What workers on other machines need for ``run``. ``options`` are the options of the worker. Thread safe."""

    def __init__(self, run: PreparedRun, options: RunOptions) -> None:
        self._run = run
        self._options = options
        self._lock = threading.Lock()

    @property
    def settings(self) -> bytes:
        """The settings of a worker: see :func:`read_settings`. They contain secrets."""
        with self._lock:
            return self._packed

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the content that every worker of the run needs. Raises :class:`InfrastructureError`."""
        return (f"{FILES} {files_of(self.settings)}", *self._images)

    def content(self, name: str) -> Iterator[bytes]:
        """Yield the bytes of the content called ``name``. Raises :class:`InfrastructureError`."""
        kind, digest, *_ = name.split(" ")
        if kind in (IMAGE, PROGRAM):
            yield from ImageStore().saved(digest)
            return
        candidates = self._run.plan.directory / "candidates"
        path = candidates / digest if kind == CANDIDATE else self._archive
        with storage_errors(path), path.open("rb") as file:
            yield from chunks(file)

    @property
    def _archive(self) -> Path:
        return self._run.plan.directory / SCRATCH / _SHIPMENT / _ARCHIVE

    @cached_property
    def _images(self) -> tuple[str, ...]:
        """The names of images and programs.

        With a driver from an installed package, only programs are included: each machine resolves images itself.
        """
        from securebench.images.ensure import ensure_image

        run, store, names = self._run, ImageStore(), []
        is_own = run.info.name in plugins.own_names(ExtensionKind.DRIVER)
        for reference in sorted({*run.plan.producer.programs, *(run.header.images if is_own else ())}):
            found, origin = ensure_image(store, reference), store.origin(reference)
            if run.header.images.get(reference, found.id) != found.id:
                raise ImageError(f"{reference} now refers to a different image than when the run began")
            is_program = origin is not None and origin.source is ImageSource.AGENT
            names.append(f"{PROGRAM if is_program else IMAGE} {found.id} {reference}")
        return tuple(names)

    @cached_property
    def _packed(self) -> bytes:
        """The digest of the archive, followed by the pickled settings.

        Also writes the archive, with the files of the pack and all other files that the settings refer to.
        """
        run, options = self._run, self._options
        pack, names = run.plan.pack, dict[Path, str]()
        for path in (pack.manifest_path, *(pack.directory / asset for asset in pack.asset_digests)):
            names[path] = f"pack/{path.relative_to(pack.directory)}"
        inside = pack.tasks_path.is_relative_to(pack.directory)
        names[pack.tasks_path] = f"pack/{pack.tasks_path.relative_to(pack.directory)}" if inside else "tasks.jsonl"
        secrets = {*run.plan.environment.values(), *run.plan.credentials}
        config = replace(
            run.plan.config,
            path=Path("tester.yaml"),
            benchmark=BenchmarkPaths(manifest=pack.manifest_path, tasks=pack.tasks_path),
            run=replace(run.plan.config.run, output_dir=Path("run")),
            overrides={},
        )
        settings = RemoteSettings(
            config=config,
            options=replace(
                options,
                output_dir=None,
                keep_workspaces=KeepWorkspaces.NONE,
                variables={name: value for name, value in options.variables.items() if value in secrets},
            ),
            header=run.header,
            commitment=run.commitment,
        )
        buffer = io.BytesIO()
        _Pickler(buffer, names).dump(settings)
        digest = self._write_archive({name: path for path, name in names.items()})
        return digest.encode() + buffer.getvalue()

    def _write_archive(self, files: Mapping[str, Path]) -> str:
        hashed = Digester()
        pieces = archive_of({os.fsencode(name): path for name, path in files.items()}, _OWNER)
        with storage_errors(self._archive):
            make_fresh_directory(self._archive.parent)
            with self._archive.open("wb") as file:
                file.writelines(hashed.through(pieces))
        return hashed.digest.removeprefix("sha256:")


def files_of(settings: bytes) -> str:
    """Return the digest (sha256, hex) of the archive with the files that ``settings`` need."""
    return settings[:_DIGEST].decode()


def read_settings(settings: bytes, directory: Path) -> RemoteSettings:
    """Unpickle ``settings``. In the result, the paths of shipped files are below ``directory``."""
    found: RemoteSettings = _Unpickler(io.BytesIO(settings[_DIGEST:]), directory).load()
    return found


class _Pickler(pickle.Pickler):
    """Replaces each absolute path of an existing file or directory by a name in the archive."""

    def __init__(self, file: io.BytesIO, names: dict[Path, str]) -> None:
        super().__init__(file)
        self._names = names

    def persistent_id(self, value: Any) -> str | None:
        if not isinstance(value, Path) or not value.is_absolute() or not value.exists():
            return None
        return self._names.setdefault(value, f"{len(self._names)}/{value.name}")


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, directory: Path) -> None:
        super().__init__(file)
        self._directory = directory

    def persistent_load(self, name: str) -> Path:
        return self._directory / PurePosixPath(name)
