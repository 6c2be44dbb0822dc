"""The inspection of a package's archive: it may contain only files and directories below one directory."""

from __future__ import annotations

import gzip
import hashlib
import os
import tarfile
from typing import TYPE_CHECKING, Any

import pytest

from fake_npm import archive, entry, package
from securebench.agents import package as package_module
from securebench.agents.package import Package, inspect
from securebench.errors import InfrastructureError
from securebench.fs.archives import ArchiveLimits

if TYPE_CHECKING:
    from pathlib import Path


def inspected(data: bytes, tmp_path: Path) -> Package:
    """Write ``data`` to an archive file, and return the result of its inspection."""
    (tmp_path / "archive.tgz").write_bytes(data)
    return inspect(tmp_path / "archive.tgz", "the archive")


def test_a_package_says_what_it_is(tmp_path: Path) -> None:
    """A package has a name, a version, files, executables (both relative to the top directory) and a tar digest."""
    data = package("@scope/tool", "1.2.3", "bin/deep/tool", entry("package/README.md", b"x"))
    digest = f"sha256:{hashlib.sha256(gzip.decompress(data)).hexdigest()}"
    executables = frozenset({"bin/deep/tool"})
    files = executables | {"README.md", "package.json"}
    assert inspected(data, tmp_path) == Package("@scope/tool", "1.2.3", "package", files, executables, digest)


@pytest.mark.parametrize(
    "bad",
    [
        entry("package/../../escape", b"x"),
        entry("package/..", b"x"),
        entry("/package/absolute", b"x"),
        entry("/etc/passwd", b"x"),
        entry("other/file", b"x"),
        entry("package", b"x"),
        entry("package//file", b"x"),
        entry("package/./file", b"x"),
        entry("package/new\nline", b"x"),
        entry("package/\u202etxt", b"x"),
        entry("package/" + "d/" * 30 + "file", b"x"),
        entry("package/" + "n" * 256, b"x"),
        entry("package/link", kind=tarfile.SYMTYPE, link="/etc/passwd"),
        entry("package/link", kind=tarfile.SYMTYPE, link="package.json"),
        entry("package/link", kind=tarfile.LNKTYPE, link="package/package.json"),
        entry("package/link", kind=tarfile.LNKTYPE, link="/etc/passwd"),
        entry("package/device", kind=tarfile.CHRTYPE),
        entry("package/pipe", kind=tarfile.FIFOTYPE),
        entry("package/package.json", b"again"),
        entry("package/package.json/below", b"x"),
        entry("package/bin", b"a file in place of a directory"),
        entry("package/.wh.package.json"),
        entry("package/bin/.wh..wh..opq"),
        entry("package/set-id", b"x", 0o4755),
        entry("package/private", b"x", 0o600),
        entry("package/closed", mode=0o700, kind=tarfile.DIRTYPE),
    ],
    ids=lambda bad: bad[0].name[:24].encode("unicode_escape").decode() + bad[0].type.decode(),
)
def test_what_no_package_has_is_refused(tmp_path: Path, bad: Any) -> None:
    """An archive with an unsafe path, link, special file, duplicate, whiteout or unsuitable mode is refused."""
    with pytest.raises(InfrastructureError) as caught:
        inspected(package("tool", "1", "bin/tool", bad), tmp_path)
    assert caught.value.code == "agent-unusable"


def test_a_name_that_is_no_text_is_refused(tmp_path: Path) -> None:
    """An archive with a path that is not valid UTF-8 is refused."""
    data = gzip.decompress(archive(entry("package/aaaa", b"x")))
    header = bytearray(data[:512])
    header[8:12] = b"\xff\xfe\xff\xfe"
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    with pytest.raises(InfrastructureError, match="contains an invalid path"):
        inspected(gzip.compress(bytes(header) + data[512:]), tmp_path)


@pytest.mark.parametrize("data", [b"", b"no archive", gzip.compress(b"no archive", mtime=0), b"\x1f\x8b\x08"])
def test_what_is_no_archive_is_refused(tmp_path: Path, data: bytes) -> None:
    """Data that is not a gzipped tar archive is refused as an unusable archive."""
    with pytest.raises(InfrastructureError) as caught:
        inspected(data, tmp_path)
    assert caught.value.code == "agent-unusable"


def test_an_archive_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    """An archive is refused if it ends after a quarter or half of its bytes, or shortly before the end."""
    data = package("tool", "1", "bin/tool", data=os.urandom(3000))
    for length in (len(data) // 4, len(data) // 2, len(data) - 9):
        place = tmp_path / str(length)
        place.mkdir()
        with pytest.raises(InfrastructureError, match=r"decompressed|truncated"):
            inspected(data[:length], place)


@pytest.mark.parametrize(
    "limits",
    [ArchiveLimits(bytes=1_000_000), ArchiveLimits(members=2), ArchiveLimits(ratio=2, ratio_floor=1000)],
    ids=["bytes", "members", "ratio"],
)
def test_what_is_too_much_is_refused(tmp_path: Path, limits: ArchiveLimits, monkeypatch: pytest.MonkeyPatch) -> None:
    """An archive that exceeds the limit for bytes, members or compression ratio is refused."""
    monkeypatch.setattr(package_module, "LIMITS", limits)
    with pytest.raises(InfrastructureError, match=r"more than|larger than|expand to at least") as caught:
        inspected(package("tool", "1", "bin/tool", entry("package/zeros", bytes(4_000_000))), tmp_path)
    assert caught.value.code == "agent-unusable"


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b'{"name": "x"}', b'{"name": 1, "version": "1"}', b"\xff"])
def test_a_package_without_a_name_is_refused(tmp_path: Path, text: bytes) -> None:
    """An archive whose ``package.json`` has no valid name and version is refused."""
    with pytest.raises(InfrastructureError, match="with a name and a version"):
        inspected(archive(entry("package/package.json", text)), tmp_path)
