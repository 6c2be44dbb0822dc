"""What a fake leaves of a directory, and the files of its images on the host."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
import tempfile
import weakref
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from securebench.images.store.leases import TreeLease
from securebench.sandboxes.collected import CollectedArchive, DirectoryReplacedError
from securebench.testing.fake_files import FakeFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PIECE = 10240


class FakeTrees:
    """The files of images, by their ids, laid out when they are first wanted and removed with this."""

    def __init__(self) -> None:
        self._roots: dict[str, Path] = {}

    def lease(self, image_id: str, files: Mapping[str, bytes]) -> TreeLease:
        """Return a lease of a directory that holds ``files``."""
        if image_id not in self._roots:
            self._roots[image_id] = self._lay_out(files)
        root = self._roots[image_id]
        return TreeLease(root, os.open(root, os.O_RDONLY | os.O_CLOEXEC))

    def _lay_out(self, files: Mapping[str, bytes]) -> Path:
        root = Path(tempfile.mkdtemp(prefix="fake-image-"))
        weakref.finalize(self, shutil.rmtree, root, ignore_errors=True)
        for path, data in files.items():
            file = root / path.lstrip("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        return root


def left_directory(root: Mapping[str, FakeFile], path: str) -> CollectedArchive:
    """Return what is left of the directory ``path``, as an engine gives it. Raises :class:`DirectoryReplacedError`."""
    wanted = PurePosixPath(path)
    on_the_way = [root[str(name)] for name in (wanted, *wanted.parents) if str(name) in root]
    below = {name: file for name, file in root.items() if PurePosixPath(name).is_relative_to(wanted)}
    if not below or any(file.kind != tarfile.DIRTYPE for file in on_the_way):
        raise DirectoryReplacedError(path)
    return CollectedArchive(_pieces(_with_directories(below, wanted), wanted.parent))


def _with_directories(files: Mapping[str, FakeFile], top: PurePosixPath) -> dict[str, FakeFile]:
    directories = {
        str(parent) for name in files for parent in PurePosixPath(name).parents if parent.is_relative_to(top)
    }
    implied = {name: FakeFile(b"", 0, 0o755, tarfile.DIRTYPE) for name in directories}
    return dict(sorted((implied | dict(files)).items()))


def _pieces(files: Mapping[str, FakeFile], parent: PurePosixPath) -> Iterator[bytes]:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w", format=tarfile.GNU_FORMAT, errors="surrogateescape") as archive:
        for name, file in files.items():
            member = tarfile.TarInfo(str(PurePosixPath(name).relative_to(parent)))
            member.type, member.mode, member.uid = file.kind, file.mode, file.owner
            if file.kind == tarfile.SYMTYPE:
                member.linkname = os.fsdecode(file.data)
            elif file.kind == tarfile.REGTYPE:
                member.size = len(file.data)
            archive.addfile(member, io.BytesIO(file.data))
    data = whole.getvalue()
    yield from (data[start : start + _PIECE] for start in range(0, len(data), _PIECE))
