"""Sources are read with limits, from files, archives and URLs, and are never run or unpacked to disk."""

from __future__ import annotations

import io
import os
import tarfile
import tracemalloc
from typing import TYPE_CHECKING

import pytest

from fake_server import Content, FakeServer, redirects, serving
from importers.records import gzipped, tar_of, zip_of
from securebench.errors import ConfigError
from securebench.importers import sources
from securebench.importers.sources import is_tar, is_url, opened, read_document, source_name, tar_document, zip_document

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def _read(source: str) -> bytes:
    with opened(source) as (stream, _):
        return read_document(stream, source)


def _code(source: str, file_name: str = "a.csv") -> str:
    with pytest.raises(ConfigError) as caught:
        _member(source, file_name)
    return caught.value.code


def _member(source: str, file_name: str = "a.csv") -> tuple[str, bytes]:
    with opened(source) as (stream, _):
        assert is_tar(stream)
        return tar_document(stream, source, file_name)


@pytest.fixture
def server() -> Iterator[str]:
    """Return the URL of a web server on this machine."""
    with serving(FakeServer()) as fake:
        fake.files |= {
            "/data": Content(b"some data"),
            "/packed": Content(gzipped(b"packed data")),
            "/endless": Content(b"x" * 200_000),
        }
        fake.faults |= {
            "/again": [redirects("/data")],
            "/escape": [redirects("file:///etc/hostname")],
            "/ftp": [redirects("ftp://127.0.0.1/file")],
        }
        yield fake.url


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def test_a_file_is_read_packed_or_not(tmp_path: Path) -> None:
    """A plain file and a gzipped one give the same bytes, whatever their names are."""
    (tmp_path / "plain").write_bytes(b"data")
    (tmp_path / "packed").write_bytes(gzipped(b"data"))
    assert _read(str(tmp_path / "plain")) == _read(str(tmp_path / "packed")) == b"data"


def test_a_url_is_read(server: str) -> None:
    """A file can be read over HTTP, also if it is gzipped or after a redirect."""
    assert _read(f"{server}/data") == _read(f"{server}/again") == b"some data"
    assert _read(f"{server}/packed") == b"packed data"


@pytest.mark.parametrize("path", ["/nothing", "/escape", "/ftp"])
def test_a_url_that_fails_or_leads_elsewhere_is_refused(server: str, path: str) -> None:
    """A missing file and a redirect to another scheme are failed downloads, and the error says what to do."""
    with pytest.raises(ConfigError) as caught:
        _read(server + path)
    assert caught.value.code == "import-download-failed"
    assert "pass its path" in str(caught.value)


def test_a_server_that_is_not_there_is_an_error_of_ours() -> None:
    """A refused connection is reported as a failed download."""
    with pytest.raises(ConfigError) as caught:
        _read("http://127.0.0.1:1/data")
    assert caught.value.code == "import-download-failed"


def test_a_download_is_capped(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """H14: a download that is larger than the limit is stopped."""
    monkeypatch.setattr(sources, "MAX_SOURCE_BYTES", 100_000)
    with pytest.raises(ConfigError) as caught:
        _read(f"{server}/endless")
    assert caught.value.code == "import-too-large"


@pytest.mark.parametrize(
    ("source", "expected"), [("http://x/y", True), ("HTTPS://x", True), ("file:///x", False), ("x", False)]
)
def test_only_http_and_https_are_urls(source: str, expected: bool) -> None:
    """Only a source that starts with http:// or https:// is a URL."""
    assert is_url(source) is expected


@pytest.mark.parametrize(
    ("source", "expected"), [("/a/b.csv", "b.csv"), ("http://h/a/b.csv?x=/y", "b.csv"), ("b.csv", "b.csv")]
)
def test_a_source_has_a_name(source: str, expected: str) -> None:
    """The name of a source is the last part of its path, without the query of a URL."""
    assert source_name(source) == expected


def test_a_gzip_bomb_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """H14: a small gzip file that expands beyond the limit for one document is refused."""
    monkeypatch.setattr(sources, "MAX_DOCUMENT_BYTES", 1_000_000)
    (tmp_path / "bomb.gz").write_bytes(gzipped(bytes(50_000_000)))
    with pytest.raises(ConfigError) as caught:
        _read(str(tmp_path / "bomb.gz"))
    assert caught.value.code == "import-too-large"


def test_a_gzip_inside_a_gzip_is_unpacked_once(tmp_path: Path) -> None:
    """H14: a gzip file inside a gzip file is not decompressed."""
    (tmp_path / "twice.gz").write_bytes(gzipped(gzipped(b"data")))
    assert _read(str(tmp_path / "twice.gz")) == gzipped(b"data")


def test_a_gzip_cut_short_is_refused(tmp_path: Path) -> None:
    """A gzip file that is cut short is an error, and does not give partial data."""
    (tmp_path / "cut.gz").write_bytes(gzipped(os.urandom(5_000))[:2_000])
    with pytest.raises(ConfigError) as caught:
        _read(str(tmp_path / "cut.gz"))
    assert caught.value.code == "import-archive-invalid"


def test_a_fifo_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    """A FIFO is refused without waiting for it, and a missing file is reported as missing."""
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(ConfigError) as caught:
        _read(str(tmp_path / "fifo"))
    assert caught.value.code == "file-not-regular"
    with pytest.raises(ConfigError) as caught:
        _read(str(tmp_path / "missing"))
    assert caught.value.code == "file-missing"


@pytest.mark.parametrize("packed", [False, True])
def test_a_member_of_a_tar_is_read_where_it_lies(tmp_path: Path, packed: bool) -> None:
    """A file is found by name in any directory of a tar archive except ``__MACOSX``. Nothing is extracted to disk."""
    archive = tar_of(tmp_path / "t", {"data/a.csv": b"rows", "data/b.csv": b"", "__MACOSX/a.csv": b"x"}, packed=packed)
    assert _member(str(archive)) == (f"{archive}!data/a.csv", b"rows")
    assert [path.name for path in tmp_path.iterdir()] == ["t"]


def test_what_is_no_tar_is_told_apart(tmp_path: Path) -> None:
    """A CSV file and an empty file are not recognised as tar archives."""
    (tmp_path / "a.csv").write_bytes(b"q,a,b,A\n" * 100)
    (tmp_path / "empty").write_bytes(b"")
    for name in ("a.csv", "empty"):
        with opened(str(tmp_path / name)) as (stream, _):
            assert not is_tar(stream)


def test_a_member_that_is_missing_or_there_twice_is_refused(tmp_path: Path) -> None:
    """An archive is refused unless it contains the wanted file exactly once."""
    assert _code(str(tar_of(tmp_path / "none", {"b.csv": b""}))) == "import-file-missing"
    assert _code(str(tar_of(tmp_path / "two", {"x/a.csv": b"", "y/a.csv": b""}))) == "import-file-ambiguous"


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE, tarfile.CHRTYPE])
def test_a_member_that_is_no_regular_file_is_passed_over(tmp_path: Path, kind: bytes) -> None:
    """H13: links, FIFOs, devices and directories that have the wanted name are not read."""
    with tarfile.open(tmp_path / "t", "w") as archive:
        member = tarfile.TarInfo("data/a.csv")
        member.type, member.linkname = kind, "/etc/hostname"
        archive.addfile(member)
    assert _code(str(tmp_path / "t")) == "import-file-missing"


@pytest.mark.parametrize("name", ["../a.csv", "{absolute}/a.csv", "x/../../a.csv"])
def test_a_path_in_an_archive_leads_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """H13: a member whose path leads out of the archive is read, and nothing is written to disk."""
    inside = tmp_path / "inside"
    inside.mkdir()
    monkeypatch.chdir(inside)
    assert _member(str(tar_of(inside / "t", {name.format(absolute=tmp_path): b"rows"})))[1] == b"rows"
    assert [path.name for path in tmp_path.iterdir()] == ["inside"]
    assert [path.name for path in inside.iterdir()] == ["t"]


def test_a_tar_with_a_huge_member_or_many_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """H14: the bytes of one member, the bytes of all members, and the number of members are limited."""
    big = tar_of(tmp_path / "big", {"a.csv": bytes(3_000_000)}, packed=True)
    many = tar_of(tmp_path / "many", {f"{n}.csv": b"" for n in range(50)}, packed=True)
    monkeypatch.setattr(sources, "MAX_DOCUMENT_BYTES", 1_000_000)
    assert _code(str(big)) == "import-too-large"
    monkeypatch.setattr(sources, "MAX_MEMBERS", 20)
    assert _code(str(many)) == "import-too-large"
    monkeypatch.setattr(sources, "MAX_SOURCE_BYTES", 1_000_000)
    assert _code(str(big), "b.csv") == "import-too-large"


def test_a_broken_tar_is_refused(tmp_path: Path) -> None:
    """A tar archive that is cut short is refused."""
    whole = tar_of(tmp_path / "t", {"a.csv": os.urandom(20_000)}).read_bytes()
    (tmp_path / "cut").write_bytes(whole[:5_000])
    assert _code(str(tmp_path / "cut")) == "import-archive-invalid"


def test_a_forged_length_in_a_tar_takes_no_memory(tmp_path: Path) -> None:
    """H14: a tar member with a forged size is refused, and memory of that size is never allocated."""
    member = tarfile.TarInfo("a.csv")
    member.size = sources.MAX_DOCUMENT_BYTES
    (tmp_path / "forged").write_bytes(member.tobuf() + b"x" * 5_000)
    tracemalloc.start()
    try:
        assert _code(str(tmp_path / "forged")) == "import-archive-invalid"
        assert tracemalloc.get_traced_memory()[1] < sources.MAX_DOCUMENT_BYTES // 10
    finally:
        tracemalloc.stop()


def test_a_member_of_a_zip_is_read_and_unpacked(tmp_path: Path) -> None:
    """A member of a zip archive is read, and decompressed if it is gzipped itself."""
    wheel = zip_of(tmp_path / "w.whl", {"p/data.gz": gzipped(b"rows"), "p/plain": b"plain"})
    assert zip_document(wheel, "p/data.gz") == b"rows"
    assert zip_document(wheel, "p/plain") == b"plain"


def test_a_zip_that_lies_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """H14: a file that is no zip archive, a missing member, and a member that expands beyond the limit are refused."""
    (tmp_path / "no.whl").write_bytes(b"not a zip")
    wheel = zip_of(tmp_path / "w.whl", {"bomb": bytes(5_000_000), "packed": gzipped(bytes(5_000_000))})
    monkeypatch.setattr(sources, "MAX_DOCUMENT_BYTES", 1_000_000)
    for path, member, code in (
        (tmp_path / "no.whl", "x", "import-archive-invalid"),
        (wheel, "missing", "import-file-missing"),
        (wheel, "bomb", "import-too-large"),
        (wheel, "packed", "import-too-large"),
    ):
        with pytest.raises(ConfigError) as caught:
            zip_document(path, member)
        assert caught.value.code == code


def test_reading_takes_what_is_there(tmp_path: Path) -> None:
    """A stream that returns fewer bytes than requested is read to its end."""

    class Slow(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            return super().read(min(size or 1, 3))

    assert read_document(Slow(b"0123456789"), "slow") == b"0123456789"
