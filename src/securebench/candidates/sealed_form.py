"""Check the form of a candidate that another run sealed, because anyone may have made the file.

Verifiers unpack sealed trees on the host, and rely on their form: relative paths without ``..``, each directory before
its entries, and nothing but files, directories and symbolic links. In a run, sealing guarantees this. A file from
another run must be identical to the file that sealing the same content would write. Text and code are sealed as they
are, even if they are not UTF-8, so they have no form to check.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from securebench.candidates.patch_archive import read_patch, write_patch
from securebench.errors import ConfigError, ImageError, StorageError
from securebench.fs.safe_open import TreeRefusedError
from securebench.fs.streams import chunks
from securebench.fs.tar_reader import MemberKind, TarReader
from securebench.fs.tar_writer import TarWriter
from securebench.fs.walk import KEPT_MODE, TreeLimits
from securebench.limits import MIB
from securebench.printable import printable_name
from securebench.tasks import CandidateKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from securebench.fs.tar_reader import Member

MAX_TEXT: Final = 64 * MIB
"""The largest text or code candidate that is read, in bytes. The limit for sealing is lower."""

LIMITS: Final = TreeLimits()
MAX_ARCHIVE: Final = LIMITS.total_bytes + LIMITS.entries * 4096
"""The size limit for a sealed tree, in bytes: its content, and 4 KiB for the header and padding of each entry."""
MAX_HEADERS: Final = 2 * LIMITS.path_bytes + 4096
"""The maximum size of the extended headers of one entry of a sealed tree, in bytes."""

TREES: Final = frozenset({CandidateKind.PATCH, CandidateKind.WORKSPACE})
"""Kinds whose sealed form is an archive rather than text."""


def most_bytes(kind: CandidateKind) -> int:
    """Return the size limit, in bytes, for reading a sealed candidate of this kind."""
    return MAX_ARCHIVE if kind in TREES else MAX_TEXT


def require_sealed_form(kind: CandidateKind, digest: str, file: IO[bytes]) -> None:
    """Check that ``file``, which has this ``digest``, is exactly what sealing a candidate of this kind would write.

    Raises :class:`ConfigError` (``candidate-altered``).
    """
    if kind not in TREES:
        return
    try:
        with Path(os.devnull).open("wb") as nowhere:
            if kind is CandidateKind.PATCH:
                sealed = write_patch(read_patch(chunks(file)), nowhere).digest
            else:
                sealed = _seal_again(chunks(file), nowhere)
    except (ImageError, StorageError) as error:
        raise altered(error.message) from None
    except TreeRefusedError as error:
        raise altered(str(error)) from None
    if sealed != digest:
        raise altered("it differs from the archive that SecureBench would write")


def altered(problem: str) -> ConfigError:
    """Return the error for a sealed candidate with a wrong digest or form."""
    return ConfigError(
        f"the sealed candidate was altered: {problem}",
        code="candidate-altered",
        hint="do not use this run directory as evidence",
    )


def _seal_again(pieces: Iterator[bytes], output: IO[bytes]) -> str:
    """Write the members of a sealed workspace to ``output`` as sealing would. Return the digest of the result."""
    reader = TarReader(pieces, "the sealed workspace", MAX_HEADERS)
    known: dict[bytes, MemberKind] = {}
    with TarWriter(output) as archive:
        for member in reader:
            path = _checked_path(member, known)
            known[path] = member.kind
            match member.kind:
                case MemberKind.DIRECTORY:
                    archive.directory(path, member.mode & KEPT_MODE)
                case MemberKind.SYMLINK:
                    archive.link(path, member.link)
                case MemberKind.FILE:
                    archive.file(path, member.size, map(bytes, reader.content()), member.mode & KEPT_MODE)
                case MemberKind.HARDLINK | MemberKind.SPECIAL:
                    raise altered(f"unexpected entry {printable_name(path)}")
    return archive.digest


def _checked_path(member: Member, known: dict[bytes, MemberKind]) -> bytes:
    """Return the path of ``member``.

    Raises :class:`ConfigError` if the path is unsafe, was seen before or exceeds a limit, or if its directory is not in
    ``known``.
    """
    path = member.path.removesuffix(b"/")
    parent, _, name = path.rpartition(b"/")
    is_safe = (
        not {b"", b".", b".."} & set(path.split(b"/"))
        and (not parent or known.get(parent) is MemberKind.DIRECTORY)
        and path not in known
        and len(known) < LIMITS.entries
        and len(path) <= LIMITS.path_bytes
        and len(name) <= LIMITS.name_bytes
        and path.count(b"/") < LIMITS.depth
    )
    if not is_safe:
        raise altered(f"unexpected entry {printable_name(path)}")
    return path
