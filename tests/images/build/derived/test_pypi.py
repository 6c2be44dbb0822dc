"""Source archives: fetched from a local package index, and unpacked without running anything in them."""

from __future__ import annotations

import gzip
import hashlib
import json
import tarfile
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from fake_server import Content, FakeServer, redirects, serving
from image_archives import directory, file, hard_link, layer, special, symlink
from securebench.errors import ImageError
from securebench.images.build.derived.pypi import fetch_release, unpacked
from securebench.images.build.git.model import EXECUTABLE, FILE, LINK, SourceFile
from securebench.images.build.recipe_kinds import PypiSource

if TYPE_CHECKING:
    from collections.abc import Iterator

GOOD = gzip.compress(
    layer(
        directory("My_Tool-1.0/"),
        file("My_Tool-1.0/setup.py", b"raise SystemExit('never run')\n"),
        file("My_Tool-1.0/run", b"#!/bin/sh\n", mode=0o755),
        symlink("My_Tool-1.0/link", "run"),
        hard_link("My_Tool-1.0/again", "My_Tool-1.0/setup.py"),
    ),
    mtime=0,
)
SHA256 = hashlib.sha256(GOOD).hexdigest()
SOURCE = PypiSource(name="my.tool", version="1.0")


@contextmanager
def index(*files: dict[str, object], content: bytes = GOOD) -> Iterator[str]:
    """Serve a package index on this machine that lists these files. ``content`` is the file at ``/files/x``."""
    with serving(FakeServer()) as server:
        server.files["/simple/my-tool/"] = Content(json.dumps({"files": list(files)}).encode())
        server.files["/files/x"] = Content(content)
        server.faults["/elsewhere"] = [redirects("http://example.invalid/x")]
        yield f"{server.url}/simple"


def listed(filename: str = "My_Tool-1.0.tar.gz", url: str = "../../files/x", sha256: str = SHA256) -> dict[str, object]:
    """Return the index's entry for a file."""
    return {"filename": filename, "url": url, "hashes": {"sha256": sha256}}


def test_the_releases_source_archive_is_fetched_and_read() -> None:
    """The source archive is found even if its name spells the project's name differently.

    Wheels, other releases and other projects are skipped. The archive's top directory is removed from the paths.
    """
    others = (
        listed("my_tool-1.0-py3-none-any.whl"),
        listed("my-tool-1.0.1.tar.gz"),
        listed("my-tool-extra-1.0.tar.gz"),
    )
    with index(*others, listed()) as address:
        tree, sha256 = fetch_release(SOURCE, address)
    assert sha256 == SHA256
    assert tree.files == {
        b"setup.py": SourceFile(FILE, b"raise SystemExit('never run')\n"),
        b"run": SourceFile(EXECUTABLE, b"#!/bin/sh\n"),
        b"link": SourceFile(LINK, b"run"),
        b"again": SourceFile(FILE, b"raise SystemExit('never run')\n"),
    }


@pytest.mark.parametrize(
    ("source", "entry"),
    [
        (SOURCE, listed(sha256="0" * 64)),
        (PypiSource(name="my-tool", version="1.0", sha256="0" * 64), listed()),
    ],
    ids=["index", "recipe"],
)
def test_an_archive_that_is_another_is_refused(source: PypiSource, entry: dict[str, object]) -> None:
    """An archive whose digest differs from that in the index or in the recipe is refused."""
    with index(entry) as address, pytest.raises(ImageError) as caught:
        fetch_release(source, address)
    assert caught.value.code == "image-blob-mismatch"


@pytest.mark.parametrize("entry", [listed("my_tool-1.0-py3-none-any.whl"), listed("my-tool-2.0.tar.gz"), {}])
def test_a_release_without_a_source_archive_is_said(entry: dict[str, object]) -> None:
    """The error for a release without a source archive says so."""
    with index(entry) as address, pytest.raises(ImageError, match="no source archive") as caught:
        fetch_release(SOURCE, address)
    assert caught.value.code == "source-unavailable"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("file:///etc/passwd", "invalid address"),
        ("http://example.invalid/x", "has no TLS"),
        ("ftp://127.0.0.1/x", "invalid address"),
        ("/elsewhere", "has no TLS"),
    ],
)
def test_an_index_leads_nowhere_but_over_tls(url: str, why: str) -> None:
    """A local file, an FTP address and a remote address without TLS are refused, even after a redirect."""
    with index(listed(url=url)) as address, pytest.raises(ImageError, match=why) as caught:
        fetch_release(SOURCE, address)
    assert caught.value.code == "source-unavailable"


def test_an_index_that_cannot_be_reached_is_said_without_its_password() -> None:
    """The error for an index that cannot be reached does not contain the password in its address."""
    with pytest.raises(ImageError) as caught:
        fetch_release(SOURCE, "http://user:secret@127.0.0.1:9/simple")
    assert caught.value.code == "source-unavailable"
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "part",
    [
        file("x-1/../../evil"),
        file("/x-1/absolute"),
        file("x-1/.git/hooks/pre-commit"),
        file("x-1/sub/.GIT/config"),
        special("x-1/pipe", tarfile.FIFOTYPE),
        special("x-1/device", tarfile.CHRTYPE),
        hard_link("x-1/a", "/etc/passwd"),
        hard_link("x-1/a", "x-1/missing"),
        file("other/top"),
        file("x-1/ok/below"),
    ],
    ids=lambda part: part[0].name,
)
def test_what_leads_out_or_is_no_file_is_refused(part: tuple[tarfile.TarInfo, bytes]) -> None:
    """H13: unsafe or conflicting paths, special files and hard links to other files than the archive's are refused."""
    with pytest.raises(ImageError) as caught:
        unpacked(layer(file("x-1/ok"), part), "the archive")
    assert caught.value.code in {"source-unusable", "image-malformed"}


def test_a_file_outside_of_the_top_directory_is_named() -> None:
    """The error names the file that is outside the archive's top directory."""
    with pytest.raises(ImageError, match="it has the file 'README' outside of its top directory") as caught:
        unpacked(layer(file("x-1/ok"), file("README")), "the archive")
    assert caught.value.code == "source-unusable"


@pytest.mark.parametrize(
    ("limit", "most", "data", "code"),
    [
        ("MAX_BYTES", 20_000, gzip.compress(layer(file("x/big", bytes(100_000)))), "image-too-large"),
        ("MAX_BYTES", 20_000, gzip.compress(layer(file("x/big", bytes(25_000)))), "source-unusable"),
        ("MAX_FILES", 3, layer(*(file(f"x/{number}", b"") for number in range(4))), "source-unusable"),
    ],
    ids=["archive", "bytes", "files"],
)
def test_an_archive_that_grows_out_of_all_bounds_is_refused(
    monkeypatch: pytest.MonkeyPatch, limit: str, most: int, data: bytes, code: str
) -> None:
    """H14: an archive is refused if it is too large when decompressed, or has too many files or bytes in its files."""
    monkeypatch.setattr(f"securebench.images.build.derived.pypi.{limit}", most)
    with pytest.raises(ImageError) as caught:
        unpacked(data, "the archive")
    assert caught.value.code == code


@pytest.mark.parametrize("data", [b"", b"rubbish", gzip.compress(b"rubbish", mtime=0), GOOD[:-20]])
def test_what_is_no_archive_is_refused(data: bytes) -> None:
    """Data that is not an archive, and an archive that is truncated, are refused."""
    with pytest.raises(ImageError):
        unpacked(data, "the archive")
