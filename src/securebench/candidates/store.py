"""The store of sealed candidates: one file per candidate, named by the sha256 of its content.

``sha256sum`` verifies a candidate. A sealed workspace is a plain tar archive. Files are created atomically, never
modified, and hashed again on every load, so the judged candidate is the sealed one.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from securebench.candidates.artifact import CandidateArtifact
from securebench.candidates.patch_archive import read_patch, write_patch
from securebench.candidates.sealed_form import TREES, altered, require_sealed_form
from securebench.errors import StorageError
from securebench.faults import FaultPoint, reached
from securebench.fs.durable import make_directories, sync_directory
from securebench.fs.safe_open import OPEN_FILE
from securebench.fs.streams import Digester, chunks
from securebench.limits import MIB
from securebench.tasks import CandidateKind
from securebench.workspaces.snapshot import snapshot_tree

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from securebench.fs.walk import TreeLimits
    from securebench.patches.model import Delta

CANDIDATES = "candidates"
"""The name of the store in a run directory."""

_DIGEST = re.compile(r"[0-9a-f]{64}")
UNFINISHED = ".sealing-"
"""The prefix of temporary files, which a killed run may leave."""


class CandidateStore:
    """A store in the directory ``root``, created on first use. Safe to share between threads and processes."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def seal_bytes(self, kind: CandidateKind, data: bytes, text: str | None) -> CandidateArtifact:
        """Store ``data``; ``text`` is its decoded content, if it is text. Raises :class:`StorageError`."""
        digest = hashlib.sha256(data).hexdigest()
        with self._storing(), self._temporary() as file:
            file.write(data)
            self._publish(file, digest)
        return CandidateArtifact(kind, digest, len(data), self._path(digest), text)

    def seal_tree(self, kind: CandidateKind, root: Path, limits: TreeLimits | None = None) -> CandidateArtifact:
        """Store a snapshot of the tree below ``root``.

        Raises :class:`~securebench.fs.safe_open.TreeRefusedError` for a tree that is unsafe or too large, and
        :class:`StorageError`. After an error, no temporary file is left.
        """
        with self._storing(), self._temporary() as file:
            snapshot = snapshot_tree(root, file, limits)
            self._publish(file, snapshot.digest)
        return CandidateArtifact(kind, snapshot.digest, snapshot.size, self._path(snapshot.digest))

    def seal_patch(self, delta: Delta, text: str) -> CandidateArtifact:
        """Store ``delta``, the changes of a patch, and return the patch as an artifact.

        ``text`` is the unified diff of the changes. The artifact contains ``text``, but the stored file does not.

        Raises :class:`~securebench.fs.safe_open.TreeRefusedError` for names that cannot be stored, and
        :class:`StorageError`.
        """
        with self._storing(), self._temporary() as file:
            written = write_patch(delta, file)
            self._publish(file, written.digest)
        return CandidateArtifact(CandidateKind.PATCH, written.digest, written.size, self._path(written.digest), text)

    def seal_copy(self, kind: CandidateKind, digest: str, pieces: Iterable[bytes]) -> CandidateArtifact:
        """Store a candidate that another run sealed under ``digest``. ``pieces`` are its bytes.

        Raises :class:`ConfigError` (``candidate-altered``) if the bytes have another digest, and the errors of
        :func:`require_sealed_form`, of iterating ``pieces`` and of :meth:`load`. After an error, no temporary file
        is left.
        """
        hashed = Digester()
        with self._storing(), self._temporary() as file:
            for piece in hashed.through(pieces):
                file.write(piece)
            if (found := hashed.digest.removeprefix("sha256:")) != digest:
                raise altered(f"its content now hashes to {found}")
            file.seek(0)
            require_sealed_form(kind, digest, file)
            self._publish(file, digest)
        return self.load(kind, digest)

    def read_patch(self, artifact: CandidateArtifact) -> Delta:
        """Return the changes sealed as ``artifact``. Raises :class:`StorageError` as :meth:`load` does."""
        with self._storing(), self._opened(artifact.digest) as file:
            hashed = Digester()
            delta = read_patch(hashed.through(chunks(file)))
        _require_digest(artifact.digest, hashed.digest.removeprefix("sha256:"))
        return delta

    def load(self, kind: CandidateKind, digest: str) -> CandidateArtifact:
        """Return a sealed candidate. Raises :class:`StorageError`.

        ``candidate-not-stored``: it is missing; ``candidate-altered``: its content has changed.
        """
        if not _DIGEST.fullmatch(digest):
            raise StorageError(f"{digest!r} is not a candidate's digest", code="candidate-not-stored")
        with self._storing():
            data, size, found = self._read(digest, keep=kind not in TREES)
        _require_digest(digest, found)
        text = None if kind in TREES else text_or_none(data)
        return CandidateArtifact(kind, digest, size, self._path(digest), text)

    def make(self) -> None:
        """Create the directory of the store, if it does not exist. Raises :class:`StorageError`."""
        with self._storing():
            make_directories(self.root, 0o700)

    def clear_unfinished(self) -> None:
        """Remove temporary files of a killed run. Call it only while no other run uses this directory."""
        with self._storing():
            for path in self.root.glob(f"{UNFINISHED}*"):
                path.unlink(missing_ok=True)

    def keep_only(self, digests: Collection[str]) -> None:
        """Remove all temporary files, and all candidates except ``digests``. Raises :class:`StorageError`.

        Other candidates exist if a task was stopped after sealing. Call this method only after the last candidate was
        sealed.
        """
        self.clear_unfinished()
        with self._storing():
            others = [path for path in self.root.glob("*") if path.name not in digests]
            for path in others:
                if _DIGEST.fullmatch(path.name):
                    path.unlink()
            if others:
                sync_directory(self.root)

    def _path(self, digest: str) -> Path:
        return self.root / digest

    def _read(self, digest: str, *, keep: bool) -> tuple[bytes, int, str]:
        """Return the content (empty unless ``keep``), its size and its digest."""
        sha, size, kept = hashlib.sha256(), 0, bytearray()
        with self._opened(digest) as file:
            while chunk := file.read(MIB):
                sha.update(chunk)
                size += len(chunk)
                if keep:
                    kept += chunk
        return bytes(kept), size, sha.hexdigest()

    @contextmanager
    def _opened(self, digest: str) -> Iterator[IO[bytes]]:
        reached(FaultPoint.CANDIDATE_READ, self.root)
        try:
            descriptor = os.open(self._path(digest), OPEN_FILE)
        except FileNotFoundError:
            raise StorageError(
                f"the candidate {digest} is not in {self.root}",
                code="candidate-not-stored",
                hint="the run directory is incomplete; run the task again",
            ) from None
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            yield file

    @contextmanager
    def _temporary(self) -> Iterator[IO[bytes]]:
        """Open a temporary file in the store. It is removed afterwards unless it was published."""
        make_directories(self.root, 0o700)
        reached(FaultPoint.FILE_OPEN, self.root)
        with tempfile.NamedTemporaryFile(dir=self.root, prefix=UNFINISHED, delete=False) as file:
            try:
                reached(FaultPoint.FILE_WRITE, self.root)
                yield file
            finally:
                Path(file.name).unlink(missing_ok=True)

    def _publish(self, file: IO[bytes], digest: str) -> None:
        """Sync the temporary ``file`` and rename it to its digest. This may replace a file of equal content."""
        file.flush()
        os.fchmod(file.fileno(), 0o444)
        reached(FaultPoint.FILE_SYNC, self.root)
        os.fsync(file.fileno())
        reached(FaultPoint.FILE_RENAME, self.root)
        Path(file.name).replace(self._path(digest))
        sync_directory(self.root)

    @contextmanager
    def _storing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StorageError(
                f"cannot read or write candidates in {self.root}: {error.strerror or error}",
                hint="check free space and permissions and run again with --resume, or choose another 'run.output_dir'",
            ) from error


def _require_digest(digest: str, found: str) -> None:
    if found != digest:
        raise StorageError(
            f"the sealed candidate {digest} was altered: its content now hashes to {found}",
            code="candidate-altered",
            hint="do not use this run directory as evidence; run the task again in a new one",
        )


def text_or_none(data: bytes) -> str | None:
    """Return ``data`` as text, or ``None`` if it is not UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None
