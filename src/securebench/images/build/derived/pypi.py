"""Source archives from a Python package index: downloaded and unpacked without running anything in them."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from securebench.errors import ImageError
from securebench.fs.archives import ArchiveLimits
from securebench.fs.streams import decompressed
from securebench.fs.tar_reader import MemberKind, TarReader
from securebench.http.address import parse_address, without_password
from securebench.http.client import HttpClient
from securebench.http.errors import AddressError, HttpError
from securebench.http.timeouts import Deadline, Timeouts
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
from securebench.printable import printable_name
from securebench.strict_input.json_text import UnfitJsonError, decode_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from securebench.http.address import Address
    from securebench.images.build.recipe_kinds import PypiSource

INDEX: Final = "https://pypi.org/simple"
"""The index that is used unless pip is configured for another."""
_FORM: Final = "application/vnd.pypi.simple.v1+json"
_MAX_LISTING: Final = 64 * 1024 * 1024
_MAX_ARCHIVE: Final = 512 * 1024 * 1024
_SECONDS: Final = 600.0


def fetch_release(source: PypiSource, index: str = "") -> tuple[SourceTree, str]:
    """Return the files in a release's source archive, without its top directory, and the archive's sha256.

    ``index`` is the address of a simple index, by default the one that pip is configured for. Raises
    :class:`ImageError` (``source-unavailable``, ``source-unusable``, ``image-blob-mismatch``, ``image-too-large``, and
    ``image-malformed`` for a damaged archive).
    """
    http = HttpClient(Deadline(Timeouts(total=_SECONDS)))
    page = _address(f"{(index or _index()).rstrip('/')}/{normalised(source.name)}/")
    listed = _listing(http, page)
    chosen = next((file for file in listed if _is_wanted(str(file.get("filename", "")), source)), None)
    if chosen is None:
        raise ImageError(
            f"the index has no source archive (.tar.gz) of {source.name} {source.version}",
            code="source-unavailable",
            hint="check which files the index has for this release: some releases have only wheels",
        )
    data = _fetched(http, _address(str(chosen.get("url", "")), page), _MAX_ARCHIVE)
    sha256 = hashlib.sha256(data).hexdigest()
    hashes = chosen.get("hashes")
    for wanted in (source.sha256, str(hashes.get("sha256", "")) if isinstance(hashes, dict) else ""):
        if wanted and wanted != sha256:
            raise ImageError(
                f"the source archive of {source.name} {source.version} has the sha256 {sha256}, not {wanted}",
                code="image-blob-mismatch",
                hint="if the recipe has a 'sha256', check that the index lists the same one; otherwise retry, and "
                "check any proxy between this machine and the index",
            )
    return unpacked(data, f"the source archive of {source.name} {source.version}"), sha256


def normalised(name: str) -> str:
    """Return the normalized form of a project's name (PEP 503)."""
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
        if len(parts) == 1:
            raise unusable(what, f"it has the file {printable_name(parts[0])!r} outside of its top directory")
        path = b"/".join(parts[1:])
        check_path(path, what)
        if member.path.startswith(b"/") or member.kind is MemberKind.SPECIAL:
            raise unusable(what, "it contains a device, FIFO or absolute path")
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
        raise unusable(what, "it does not consist of one directory with files")
    if clash := next((path for path in files if any(above in files for above in _above(path))), None):
        raise unusable(what, f"its file {printable_name(clash)!r} is below another of its files")
    return SourceTree(files)


def _above(path: bytes) -> Iterator[bytes]:
    while b"/" in path:
        path = path.rpartition(b"/")[0]
        yield path


def _linked(files: dict[bytes, SourceFile], link: bytes, what: str) -> SourceFile:
    found = files.get(link.partition(b"/")[2])
    if found is None:
        raise unusable(what, "it has a hard link to a missing file")
    return found


def _is_wanted(filename: str, source: PypiSource) -> bool:
    """Return whether a file is the release's source archive, ``Name-Version.tar.gz``, in any spelling of the name."""
    stem = filename.removesuffix(".tar.gz")
    name, _, version = stem.rpartition("-")
    return stem != filename and normalised(name) == normalised(source.name) and version == source.version


def _index() -> str:
    """Return the index that pip is configured for, or :data:`INDEX`."""
    if named := os.environ.get("PIP_INDEX_URL"):
        return named
    found = (
        query((sys.executable, "-I", "-m", "pip", "config", "get", "global.index-url")) if find_spec("pip") else None
    )
    return found.stdout.strip() if found and found.returncode == 0 and found.stdout.strip() else INDEX


def _listing(http: HttpClient, page: Address) -> list[dict[str, Any]]:
    """Return the files on a project's page."""
    data = _fetched(http, page, _MAX_LISTING)
    try:
        value = decode_json(data.decode("utf-8"))[0]
    except (UnfitJsonError, UnicodeDecodeError):
        value = None
    files = value.get("files") if isinstance(value, dict) else None
    if not isinstance(files, list):
        raise ImageError(
            f"{page.url} is not a page of a package index",
            code="source-unavailable",
            hint=f"set PIP_INDEX_URL to an index that supports the JSON form of the simple API, such as {INDEX}",
        )
    return [file for file in files if isinstance(file, dict)]


def _address(url: str, page: Address | None = None) -> Address:
    """Return the address of an index, or of a file on its page. Raises :class:`ImageError`."""
    try:
        return page.follow(url) if page else parse_address(url)
    except AddressError as error:
        raise _unavailable(without_password(url), error) from error


def _fetched(http: HttpClient, address: Address, limit: int) -> bytes:
    try:
        return http.read(address, limit, {"Accept": f"{_FORM}, */*;q=0.1"})[0]
    except HttpError as error:
        raise _unavailable(address.url, error) from error


def _unavailable(url: str, error: HttpError) -> ImageError:
    return ImageError(
        f"cannot fetch {url}: {error}",
        code="source-unavailable",
        hint="check the network and proxies (HTTPS_PROXY, SSL_CERT_FILE), and PIP_INDEX_URL if it is set",
    )
