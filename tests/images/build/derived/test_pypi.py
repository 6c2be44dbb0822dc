"""Source archives: from an index of this test's, and read without running anything of them."""

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
    """Serve a simple index that lists these files, on this machine."""
    with serving(FakeServer()) as server:
        server.files["/simple/my-tool/"] = Content(json.dumps({"files": list(files)}).encode())
        server.files["/files/x"] = Content(content)
        server.faults["/elsewhere"] = [redirects("http://example.invalid/x")]
        yield f"{server.url}/simple"


def listed(filename: str = "My_Tool-1.0.tar.gz", url: str = "../../files/x", sha256: str = SHA256) -> dict[str, object]:
    """Return an entry of an index."""
    return {"filename": filename, "url": url, "hashes": {"sha256": sha256}}


def test_the_releases_source_archive_is_fetched_and_read() -> None:
    """Wheels and other releases are passed by; names count in any spelling; the top directory goes."""
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
    """What the index, or the recipe, says of its digest must hold."""
    with index(entry) as address, pytest.raises(ImageError) as caught:
        fetch_release(source, address)
    assert caught.value.code == "image-blob-mismatch"


@pytest.mark.parametrize("entry", [listed("my_tool-1.0-py3-none-any.whl"), listed("my-tool-2.0.tar.gz"), {}])
def test_a_release_without_a_source_archive_is_said(entry: dict[str, object]) -> None:
    """There is nothing to make a repository of."""
    with index(entry) as address, pytest.raises(ImageError, match="no source archive") as caught:
        fetch_release(SOURCE, address)
    assert caught.value.code == "source-unavailable"


@pytest.mark.parametrize("url", ["file:///etc/passwd", "http://example.invalid/x", "ftp://127.0.0.1/x", "/elsewhere"])
def test_an_index_leads_nowhere_but_over_tls(url: str) -> None:
    """Neither to a file of this machine, nor to a plain address elsewhere, nor by a redirect."""
    with index(listed(url=url)) as address, pytest.raises(ImageError) as caught:
        fetch_release(SOURCE, address)
    assert caught.value.code == "source-unavailable"


def test_an_index_that_cannot_be_reached_is_said_without_its_password() -> None:
    """Addresses of private indexes hold credentials."""
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
    """H13: each trap ends the reading, with a typed error."""
    with pytest.raises(ImageError) as caught:
        unpacked(layer(file("x-1/ok"), part), "the archive")
    assert caught.value.code in {"source-unusable", "image-malformed"}


def test_a_file_outside_of_the_top_directory_is_named() -> None:
    """The error has the name of the file, which is not part of any directory."""
    with pytest.raises(ImageError, match="it has the file 'README' outside of its top directory") as caught:
        unpacked(layer(file("x-1/ok"), file("README")), "the archive")
    assert caught.value.code == "source-unusable"


def test_an_archive_that_grows_out_of_all_bounds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """H14: bytes and files have limits."""
    monkeypatch.setattr("securebench.images.build.derived.pypi.MAX_BYTES", 1000)
    with pytest.raises(ImageError):
        unpacked(gzip.compress(layer(file("x/big", bytes(100_000)))), "the archive")
    monkeypatch.setattr("securebench.images.build.derived.pypi.MAX_FILES", 3)
    with pytest.raises(ImageError):
        unpacked(layer(*(file(f"x/{number}", b"") for number in range(10))), "the archive")


@pytest.mark.parametrize("data", [b"", b"rubbish", gzip.compress(b"rubbish", mtime=0), GOOD[:-20]])
def test_what_is_no_archive_is_refused(data: bytes) -> None:
    """Also one that was cut short."""
    with pytest.raises(ImageError):
        unpacked(data, "the archive")
