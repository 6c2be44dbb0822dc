"""A source distribution of the Python package index: found, fetched and unpacked without running a line of it."""

from __future__ import annotations

import hashlib
import os
import re
import sys
import time
import urllib.error
import urllib.request
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urljoin, urlsplit

from securebench import __version__
from securebench.errors import ImageError
from securebench.fs.archives import ArchiveLimits
from securebench.fs.streams import decompressed
from securebench.fs.tar_reader import MemberKind, TarReader
from securebench.images.build.bootstrap import query
from securebench.images.build.git.model import (
    EXECUTABLE,
    FILE,
    LINK,
    MAX_BYTES,
    MAX_FILES,
    SourceFile,
    SourceTree,
    check_path,
    unusable,
)
from securebench.strict_input.json_text import UnfitJsonError, decode_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from securebench.images.build.recipe_kinds import PypiSource

INDEX: Final = "https://pypi.org/simple"
"""Unless pip is configured for another."""
_FORM: Final = "application/vnd.pypi.simple.v1+json"
_MAX_LISTING: Final = 64 * 1024 * 1024
_MAX_ARCHIVE: Final = 512 * 1024 * 1024
_SECONDS: Final = 600.0
_SOCKET_SECONDS: Final = 30.0
_CHUNK: Final = 1024 * 1024
_LOOPBACK: Final = frozenset(("localhost", "127.0.0.1", "::1"))


def fetch_release(source: PypiSource, index: str = "") -> tuple[SourceTree, str]:
    """Return the files of the release's source archive, without its top directory, and the archive's sha256.

    ``index`` is a simple index; by default pip's. Raises :class:`ImageError` (``source-unavailable``,
    ``source-unusable``, ``image-blob-mismatch``, and ``image-malformed`` for a damaged archive).
    """
    page = f"{(index or _index()).rstrip('/')}/{normalised(source.name)}/"
    listed = _listing(page)
    chosen = next((file for file in listed if _is_wanted(str(file.get("filename", "")), source)), None)
    if chosen is None:
        raise ImageError(
            f"the index has no source archive (.tar.gz) of {source.name} {source.version}",
            code="source-unavailable",
            hint="look for the release among the files of the project; some have only wheels",
        )
    data = b"".join(_fetched(urljoin(page, str(chosen.get("url", ""))), _MAX_ARCHIVE))
    sha256 = hashlib.sha256(data).hexdigest()
    hashes = chosen.get("hashes")
    for wanted in (source.sha256, str(hashes.get("sha256", "")) if isinstance(hashes, dict) else ""):
        if wanted and wanted != sha256:
            raise ImageError(
                f"the source archive of {source.name} {source.version} has the sha256 {sha256}, not {wanted}",
                code="image-blob-mismatch",
                hint="the recipe pins another archive, or it was exchanged on its way",
            )
    return unpacked(data, f"the source archive of {source.name} {source.version}"), sha256


def normalised(name: str) -> str:
    """Return a project's name as indexes spell it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def unpacked(data: bytes, what: str) -> SourceTree:
    """Return the files of a source archive by their paths below its one top directory. Raises :class:`ImageError`."""
    limits = ArchiveLimits(bytes=2 * MAX_BYTES, members=MAX_FILES)
    reader = TarReader(decompressed(iter((data,)), limits, what), what, limits.header)
    files: dict[bytes, SourceFile] = {}
    tops: set[bytes] = set()
    size = 0
    for member in reader:
        parts = [part for part in member.path.split(b"/") if part not in {b"", b"."}]
        tops.update(parts[:1])
        if member.kind is MemberKind.DIRECTORY or not parts:
            continue
        path = b"/".join(parts[1:])
        check_path(path, what)
        if member.path.startswith(b"/") or member.kind is MemberKind.SPECIAL:
            raise unusable(what, "it holds a device, FIFO or absolute path")
        size += member.size
        if size > MAX_BYTES or len(files) >= MAX_FILES:
            raise unusable(what, f"it has more than {MAX_FILES} files or {MAX_BYTES} bytes")
        if member.kind is MemberKind.SYMLINK:
            files[path] = SourceFile(LINK, member.link)
        elif member.kind is MemberKind.HARDLINK:
            files[path] = _linked(files, member.link, what)
        else:
            mode = EXECUTABLE if member.mode & 0o100 else FILE
            files[path] = SourceFile(mode, b"".join(reader.content()))
    if len(tops) != 1 or not files:
        raise unusable(what, "it is not one directory of files")
    if clash := next((path for path in files if any(above in files for above in _above(path))), None):
        raise unusable(what, f"it has a file and a directory of one name: {clash!r}")
    return SourceTree(files)


def _above(path: bytes) -> Iterator[bytes]:
    while b"/" in path:
        path = path.rpartition(b"/")[0]
        yield path


def _linked(files: dict[bytes, SourceFile], link: bytes, what: str) -> SourceFile:
    found = files.get(link.partition(b"/")[2])
    if found is None:
        raise unusable(what, "a hard link of it leads nowhere")
    return found


def _is_wanted(filename: str, source: PypiSource) -> bool:
    """Say whether this is the release's source archive: ``Name-Version.tar.gz``, in any of the spellings of both."""
    stem = filename.removesuffix(".tar.gz")
    name, _, version = stem.rpartition("-")
    return stem != filename and normalised(name) == normalised(source.name) and version == source.version


def _index() -> str:
    """Return the index that pip is configured for."""
    if named := os.environ.get("PIP_INDEX_URL"):
        return named
    found = (
        query((sys.executable, "-I", "-m", "pip", "config", "get", "global.index-url")) if find_spec("pip") else None
    )
    return found.stdout.strip() if found and found.returncode == 0 and found.stdout.strip() else INDEX


def _listing(page: str) -> list[dict[str, Any]]:
    data = b"".join(_fetched(page, _MAX_LISTING))
    try:
        value = decode_json(data.decode("utf-8"))[0]
    except (UnfitJsonError, UnicodeDecodeError):
        value = None
    files = value.get("files") if isinstance(value, dict) else None
    if not isinstance(files, list):
        raise ImageError(
            f"{_shown(page)} did not answer as an index of packages does",
            code="source-unavailable",
            hint=f"an index with the JSON form of the simple API is needed: PIP_INDEX_URL={INDEX}",
        )
    return [file for file in files if isinstance(file, dict)]


def _fetched(url: str, limit: int) -> Iterator[bytes]:
    """Give what is at ``url``: over TLS, or from this machine. Raises :class:`ImageError` (``source-unavailable``)."""
    parts = urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOOPBACK):
        raise _unavailable(url, "it is not an https address")
    request = urllib.request.Request(  # noqa: S310 - https, or this machine
        url, headers={"User-Agent": f"securebench/{__version__}", "Accept": f"{_FORM}, */*;q=0.1"}
    )
    deadline, size = time.monotonic() + _SECONDS, 0
    try:
        with urllib.request.build_opener(_HttpsOnly()).open(request, timeout=_SOCKET_SECONDS) as response:
            while piece := response.read(_CHUNK):
                size += len(piece)
                if size > limit or time.monotonic() > deadline:
                    raise _unavailable(url, f"it is larger than {limit} bytes, or takes longer than {_SECONDS:.0f} s")
                yield piece
    except (OSError, ValueError) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()  # it is the answer, too
        raise _unavailable(url, str(error)) from None


class _HttpsOnly(urllib.request.HTTPRedirectHandler):
    """Follows a redirect to TLS alone."""

    def redirect_request(self, req: Any, fp: Any, code: Any, msg: Any, headers: Any, newurl: str) -> Any:
        if urlsplit(newurl).scheme != "https":
            fp.close()
            raise urllib.error.URLError(f"redirected to {_shown(newurl)}, which is not https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _unavailable(url: str, why: str) -> ImageError:
    return ImageError(
        f"cannot fetch {_shown(url)}: {why}",
        code="source-unavailable",
        hint="check the network and proxies (HTTPS_PROXY, SSL_CERT_FILE), and PIP_INDEX_URL where pip needs it",
    )


def _shown(url: str) -> str:
    return re.sub(r"(?<=://)[^/@]+@", "", url)
