"""The authors' data from a path or URL: read once, with limits, never run and never unpacked to disk."""

from __future__ import annotations

import gzip
import io
import tarfile
import tempfile
import zipfile
import zlib
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Final, cast

from securebench.errors import ConfigError
from securebench.http.address import parse_address, without_password
from securebench.http.client import HttpClient
from securebench.http.download import Download
from securebench.http.errors import HttpError, TooLargeError
from securebench.http.timeouts import Deadline, Timeouts
from securebench.strict_input.files import open_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from _typeshed import WriteableBuffer

MAX_SOURCE_BYTES: Final = 512 * 1024 * 1024
"""Maximum bytes of a download, and of a source after decompression.

The limit is three times the size of the largest known archive of a text benchmark.
"""

MAX_DOCUMENT_BYTES: Final = 64 * 1024 * 1024
"""Maximum bytes of one file of rows, uncompressed."""

MAX_MEMBERS: Final = 100_000
"""Maximum members of one archive."""

DOWNLOAD_SECONDS: Final = 600.0
_CHUNK: Final = 256 * 1024
_GZIP_MAGIC: Final = b"\x1f\x8b"
_TAR_MAGIC: Final = b"ustar"
_TAR_MAGIC_AT: Final = 257


def is_url(source: str) -> bool:
    """Whether ``source`` is a URL rather than a path."""
    return source.lower().startswith(("http://", "https://"))


def source_name(source: str) -> str:
    """Return the last part of a path or URL."""
    return PurePosixPath(source.split("?", 1)[0] if is_url(source) else Path(source).name).name


@contextmanager
def opened(source: str) -> Iterator[tuple[io.BufferedReader, str]]:
    """Open a file or URL as a stream that fails beyond ``MAX_SOURCE_BYTES``. Decompresses gzip.

    Yields the stream and its name for messages: the path, or the URL without user name, password and query.

    Raises :class:`ConfigError`: ``import-download-failed``, ``import-too-large``, and the errors of
    :func:`open_regular`. Reading the stream also raises ``import-archive-invalid``.
    """
    name = without_password(source).partition("?")[0] if is_url(source) else source
    with tempfile.TemporaryFile() if is_url(source) else open_regular(Path(source), "source", follow=True) as file:
        if is_url(source):
            _download(source, name, file)
        packed = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
        file.seek(0)
        plain = gzip.GzipFile(fileobj=file) if packed else file
        yield io.BufferedReader(_Bounded(cast("IO[bytes]", plain), name), _CHUNK), name


def read_document(stream: IO[bytes], name: str) -> bytes:
    """Return all of ``stream``. Raises :class:`ConfigError` (``import-too-large``, ``import-archive-invalid``)."""
    data = _read(stream, MAX_DOCUMENT_BYTES + 1, name)
    if len(data) > MAX_DOCUMENT_BYTES:
        raise _too_large(name, MAX_DOCUMENT_BYTES)
    return data


def is_tar(stream: io.BufferedReader) -> bool:
    """Return whether ``stream`` is a tar archive. The stream must be at its start."""
    return stream.peek(_TAR_MAGIC_AT + len(_TAR_MAGIC))[_TAR_MAGIC_AT:].startswith(_TAR_MAGIC)


def tar_document(stream: io.BufferedReader, source: str, file_name: str) -> tuple[str, bytes]:
    """Return name and content of the only regular member called ``file_name``, in any directory.

    Nothing is written to disk. Raises :class:`ConfigError`: ``import-file-missing``, ``import-file-ambiguous``,
    ``import-too-large``, ``import-archive-invalid``.
    """
    found = tar_documents(stream, source, lambda name: name == file_name)
    if not found:
        raise ConfigError(f"{source} does not contain {file_name}", code="import-file-missing")
    if len(found) > 1:
        names = " and ".join(name for name, _ in found)
        raise ConfigError(f"{source} contains {file_name} more than once: {names}", code="import-file-ambiguous")
    name, data = found[0]
    return f"{source}!{name}", data


def tar_documents(stream: IO[bytes], source: str, wanted: Callable[[str], bool]) -> list[tuple[str, bytes]]:
    """Return path and content of each regular member whose file name ``wanted`` accepts.

    Members below ``__MACOSX`` are left out. Raises :class:`ConfigError`: ``import-too-large``,
    ``import-archive-invalid``.
    """
    try:
        return list(_members(stream, source, wanted))
    except tarfile.TarError as error:
        raise _invalid(source, error) from None


def zip_document(path: Path, member: str) -> bytes:
    """Return the content of one member of a zip archive. If the member is a gzip file, it is decompressed.

    Raises :class:`ConfigError`: ``import-file-missing``, ``import-too-large``, ``import-archive-invalid``.
    """
    name = f"{path.name}!{member}"
    try:
        with zipfile.ZipFile(path) as archive, archive.open(member) as file:
            data = read_document(file, name)
    except KeyError:
        raise ConfigError(f"{path.name} does not contain {member}", code="import-file-missing") from None
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise _invalid(name, error) from None
    if data.startswith(_GZIP_MAGIC):
        return read_document(cast("IO[bytes]", gzip.GzipFile(fileobj=io.BytesIO(data))), name)
    return data


def _members(stream: IO[bytes], source: str, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for count, member in enumerate(archive):
            if count >= MAX_MEMBERS:
                raise ConfigError(f"{source} has more than {MAX_MEMBERS} members", code="import-too-large")
            path = PurePosixPath(member.name)
            if wanted(path.name) and member.isreg() and "__MACOSX" not in path.parts:
                file = archive.extractfile(member)
                yield member.name, read_document(cast("IO[bytes]", file), member.name)


class _Bounded(io.RawIOBase):
    """A stream that raises :class:`ConfigError` after ``MAX_SOURCE_BYTES``, because gzip can expand a thousandfold."""

    def __init__(self, stream: IO[bytes], name: str) -> None:
        self._stream, self._name, self._left = stream, name, MAX_SOURCE_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        room = memoryview(buffer)
        data = _read(self._stream, len(room), self._name)
        room[: len(data)] = data
        self._left -= len(data)
        if self._left < 0:
            raise _too_large(self._name, MAX_SOURCE_BYTES)
        return len(data)


def _read(stream: IO[bytes], size: int, name: str) -> bytes:
    """Read up to ``size`` bytes in chunks, so that a forged length in a header does not allocate memory."""
    parts = []
    try:
        while size > 0 and (part := stream.read(min(size, _CHUNK))):
            parts.append(part)
            size -= len(part)
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        raise _invalid(name, error) from None
    return b"".join(parts)


def _download(url: str, name: str, file: IO[bytes]) -> None:
    """Download ``url`` into ``file`` and rewind it. Messages contain ``name`` instead of the URL."""
    try:
        http = HttpClient(Deadline(Timeouts(total=DOWNLOAD_SECONDS)))
        for piece in Download(http, parse_address(url, allow_plain=True), MAX_SOURCE_BYTES):
            file.write(piece)
    except TooLargeError:
        raise _too_large(name, MAX_SOURCE_BYTES) from None
    except (HttpError, OSError) as error:
        raise ConfigError(
            f"cannot download {name}: {error}",
            code="import-download-failed",
            hint="download the file with another tool and pass its path",
        ) from None
    file.seek(0)


def _too_large(name: str, limit: int) -> ConfigError:
    return ConfigError(f"{name} is larger than the limit of {limit} bytes", code="import-too-large")


def _invalid(name: str, error: Exception) -> ConfigError:
    return ConfigError(
        f"cannot read {name}: {error}", code="import-archive-invalid", hint="it may be incomplete: download it again"
    )
