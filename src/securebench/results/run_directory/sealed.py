"""Read a sealed candidate from a run directory that may come from a stranger."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from securebench.candidates.patch_archive import GONE
from securebench.candidates.sealed_form import LIMITS, MAX_HEADERS, TREES, most_bytes
from securebench.candidates.store import CANDIDATES, text_or_none
from securebench.errors import ConfigError, ImageError, SourceLocation
from securebench.fs.streams import Digester, capped, chunks
from securebench.fs.tar_reader import MemberKind, TarReader
from securebench.results.run_directory.files import opened_run_file
from securebench.tasks import CandidateKind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from securebench.fs.tar_reader import Member
    from securebench.results.recorded_task import RecordedTask


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedFile:
    """An entry of a sealed patch or workspace. ``link`` is the target of a symbolic link.

    ``path`` and ``link`` are untrusted text.
    """

    path: str
    size: int = 0
    is_directory: bool = False
    executable: bool = False
    link: str | None = None
    removed: bool = False
    """In a patch: the file was removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedCandidate:
    """A sealed candidate whose bytes match ``digest``.

    ``text``: the whole text or code; ``None`` for a patch or a workspace, and if the bytes are not UTF-8.
    ``files``: the entries of a workspace, or the files that a patch changes. The diff of a patch is in
    :attr:`RecordedTask.candidate_text`.
    """

    kind: CandidateKind
    digest: str
    size: int
    text: str | None = None
    files: tuple[SealedFile, ...] = ()


def read_sealed(directory: Path, record: RecordedTask) -> SealedCandidate:
    """Return the sealed candidate of ``record``. Time and memory are bounded.

    Raises :class:`ConfigError`: ``candidate-not-stored``, ``candidate-altered``, ``file-not-regular``.
    """
    kind, digest = record.candidate_kind, record.candidate_digest
    if digest is None or kind is None:
        raise ConfigError(f"task {record.task_id!r} has no sealed candidate", code="candidate-not-stored")
    return sealed_content(directory, kind, digest)


def sealed_content(directory: Path, kind: CandidateKind, digest: str) -> SealedCandidate:
    """Return the sealed candidate with this digest. Limits and errors are those of :func:`read_sealed`."""
    hashed = Digester()
    text: str | None = None
    files: tuple[SealedFile, ...] = ()
    with sealed_bytes(directory, kind, digest) as content:
        pieces = hashed.through(content)
        if kind in TREES:
            files = _files(TarReader(pieces, "the candidate", MAX_HEADERS), kind)
        else:
            text = text_or_none(b"".join(pieces))
        if (found := hashed.digest.removeprefix("sha256:")) != digest:
            raise _altered(f"its content now hashes to {found}", _location(directory, digest))
    return SealedCandidate(kind=kind, digest=digest, size=hashed.size, text=text, files=files)


@contextmanager
def sealed_bytes(directory: Path, kind: CandidateKind, digest: str) -> Iterator[Iterator[bytes]]:
    """Open a sealed candidate of a run that may come from a stranger, and yield its bytes in pieces.

    The bytes are not checked against ``digest``. Raises :class:`ConfigError` (``candidate-not-stored``,
    ``file-not-regular``, ``candidate-altered``). The candidate counts as altered if it has too many bytes, or if the
    ``with`` block raises :class:`ImageError`.
    """
    location = _location(directory, digest)
    try:
        with opened_run_file(directory, CANDIDATES, digest) as file:
            yield capped(chunks(file), most_bytes(kind), "the candidate")
    except ImageError as error:
        raise _altered(error.message, location) from None
    except ConfigError as error:
        if error.code != "file-missing":
            raise
        hint = "ask for a complete copy of the run directory"
        message = "the sealed candidate is missing"
        raise ConfigError(message, code="candidate-not-stored", hint=hint, location=location) from None


def _files(archive: TarReader, kind: CandidateKind) -> tuple[SealedFile, ...]:
    members = iter(archive)
    files = tuple(_file(member, kind) for member in islice(members, LIMITS.entries))
    if next(members, None) is not None:
        raise ImageError(f"it has more than {LIMITS.entries} entries", code="image-too-large")
    return files


def _file(member: Member, kind: CandidateKind) -> SealedFile:
    parent, slash, name = member.path.rpartition(b"/")
    removed = kind is CandidateKind.PATCH and name.startswith(GONE)
    return SealedFile(
        path=_name(parent + slash + name.removeprefix(GONE) if removed else member.path.rstrip(b"/")),
        size=member.size,
        is_directory=member.kind is MemberKind.DIRECTORY,
        executable=member.kind is MemberKind.FILE and bool(member.mode & 0o100),
        link=_name(member.link) if member.kind is MemberKind.SYMLINK else None,
        removed=removed,
    )


def _name(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")


def _location(directory: Path, digest: str) -> SourceLocation:
    return SourceLocation(str(directory / CANDIDATES / digest))


def _altered(problem: str, location: SourceLocation) -> ConfigError:
    return ConfigError(
        f"the sealed candidate was altered: {problem}",
        code="candidate-altered",
        hint="do not use this run directory as evidence",
        location=location,
    )
