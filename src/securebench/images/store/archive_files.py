"""The files of an image archive by name. The archive is a tar file or a directory."""

from __future__ import annotations

import errno
import os
import posixpath
import re
import stat
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final, Protocol

from securebench.fs.archives import malformed, too_large
from securebench.fs.safe_open import OPEN_DIRECTORY, OPEN_FILE, opened
from securebench.fs.streams import chunks
from securebench.fs.tar_reader import MemberKind, TarReader
from securebench.images.layout import LAYER_TYPE
from securebench.printable import printable_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from securebench.errors import ImageError
    from securebench.fs.archives import ArchiveLimits
    from securebench.images.layout import Descriptor
    from securebench.images.store.incoming import Incoming

MAX_FILES: Final = 10_000
_MAX_LINKS: Final = 8
_GZIP: Final = b"\x1f\x8b"
_HEX: Final = "[0-9a-f]{64}"
_KNOWN = re.compile(
    rf"manifest\.json|repositories|index\.json|oci-layout|blobs|blobs/sha256|blobs/sha256/{_HEX}"
    rf"|{_HEX}(?:\.json|\.tar|/layer\.tar|/VERSION|/json)?"
)
"""The names of the files and directories in image archives of all known tools."""


class Files(Protocol):
    """The files of an image archive. ``take`` raises :class:`ImageError` (``image-malformed``) for a missing file."""

    what: str
    """The name of the archive in errors."""

    def take(self, name: str) -> Descriptor:
        """Import a file as a blob of the incoming image. Return its descriptor, without a media type."""

    def has(self, name: str) -> bool:
        """Return whether this file exists."""


def document(files: Files, incoming: Incoming, name: str) -> bytes:
    """Return the content of a JSON file."""
    return incoming.read(files.take(name).digest)


def layer_type(incoming: Incoming, layer: Descriptor) -> str:
    """Return the media type of an imported layer, from its content rather than from its declared type."""
    return f"{LAYER_TYPE}+gzip" if incoming.begins(layer.digest, len(_GZIP)) == _GZIP else LAYER_TYPE


def is_image_archive(pieces: Iterable[bytes], what: str, limits: ArchiveLimits) -> bool:
    """Return whether a tar archive holds images rather than a root file system.

    The name of the first member other than ``.`` decides.
    """
    names = (_name(member.path) for member in TarReader(pieces, what, limits.header))
    first = next((name for name in names if name != "."), "")
    return bool(_KNOWN.fullmatch(first))


class TarFiles:
    """The files of a tar archive.

    The archive is read once and completely. Files with names that image archives use are stored as blobs.
    """

    def __init__(self, pieces: Iterable[bytes], what: str, incoming: Incoming, limits: ArchiveLimits) -> None:
        self.what = what
        self._blobs: dict[str, Descriptor] = {}
        self._links: dict[str, str] = {}
        reader = TarReader(pieces, what, limits.header)
        for member in reader:
            name = _name(member.path)
            if len(self._blobs) + len(self._links) > MAX_FILES:
                raise too_large(what, f"it holds more than {MAX_FILES} files")
            if member.kind is MemberKind.FILE and _KNOWN.fullmatch(name):
                self._blobs[name] = incoming.take(reader.content())
            elif member.kind is MemberKind.SYMLINK and _KNOWN.fullmatch(name):
                # Engines store a shared layer only once, and link to it from the other images.
                self._links[name] = posixpath.normpath(posixpath.join(posixpath.dirname(name), _name(member.link)))

    def take(self, name: str) -> Descriptor:
        """Return the descriptor of a file. The file is already stored as a blob."""
        wanted = posixpath.normpath(name)
        for _ in range(_MAX_LINKS):
            wanted = self._links.get(wanted, wanted)
        if wanted not in self._blobs:
            raise _missing(self.what, name)
        return self._blobs[wanted]

    def has(self, name: str) -> bool:
        """Return whether this file exists. For a link to a file, this is false, although :meth:`take` follows it."""
        return name in self._blobs


class DirectoryFiles:
    """The files of a directory. :meth:`take` refuses symbolic links in it."""

    def __init__(self, directory: Path, incoming: Incoming) -> None:
        self.what = str(directory)
        self._directory = directory
        self._incoming = incoming

    def take(self, name: str) -> Descriptor:
        """Import the file as a blob, and return its descriptor."""
        if not _KNOWN.fullmatch(name):
            raise _missing(self.what, name)
        try:
            with opened_file(self._directory, name) as descriptor, os.fdopen(descriptor, "rb", closefd=False) as file:
                return self._incoming.take(chunks(file))
        except OSError as error:
            raise malformed(f"{self.what}: {name}", f"it cannot be read: {error.strerror}") from None

    def has(self, name: str) -> bool:
        """Return whether this file exists. For a link to a file, this is true, although :meth:`take` refuses it."""
        return (self._directory / name).is_file()


@contextmanager
def opened_file(directory: Path, name: str) -> Iterator[int]:
    """Open a regular file below ``directory``. Only ``directory`` itself may be a link. Raises ``OSError``."""
    with ExitStack() as stack:
        here = stack.enter_context(opened(directory, OPEN_DIRECTORY & ~os.O_NOFOLLOW))
        *parents, last = name.split("/")
        for part in parents:
            here = stack.enter_context(opened(part, OPEN_DIRECTORY, here))
        found = stack.enter_context(opened(last, OPEN_FILE, here))
        if not stat.S_ISREG(os.fstat(found).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        yield found


def _name(path: bytes) -> str:
    return posixpath.normpath(path.decode("utf-8", "backslashreplace"))


def _missing(what: str, name: str) -> ImageError:
    return malformed(what, f"it has no file {printable_name(name.encode('utf-8', 'backslashreplace'))!r}")
