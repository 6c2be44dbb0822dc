"""The tar reader reads every format that image tools write, and refuses everything else."""

from __future__ import annotations

import tarfile
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from image_archives import file, layer, special, with_pax
from securebench.errors import ImageError
from securebench.fs.tar_reader import BLOCK, TarReader

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.fs.tar_reader import Member

LIMIT = 10_000


def read(data: bytes, piece: int = 700) -> list[tuple[Member, bytes]]:
    """Return the members of an archive, with their content. The archive is read in pieces of ``piece`` bytes."""
    reader = TarReader((data[i : i + piece] for i in range(0, len(data), piece)), "it", LIMIT)
    return [(member, b"".join(reader.content())) for member in reader]


def patched(data: bytes, at: int, new: bytes) -> bytes:
    """Return the archive ``data`` with the bytes ``new`` at ``at`` in its first header, and a correct checksum."""
    header = bytearray(data[:BLOCK])
    header[at : at + len(new)] = new
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + data[BLOCK:]


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_format_is_read(form: int) -> None:
    """In each format, long names, large user ids, modes, times, and full and empty contents are read correctly."""
    long = "d/" * 40 + "f" * 40
    owner = (2_000_000, 3) if form == tarfile.USTAR_FORMAT else (3_000_000_000, 3)
    data = layer(file(long, b"x" * 1500, mode=0o4755, owner=owner), file("empty", b""), form=form)
    (first, content), (second, nothing) = read(data)
    assert (first.path, content, first.mode) == (long.encode(), b"x" * 1500, 0o4755)
    assert (first.uid, first.gid, first.mtime_ns) == (*owner, 1_600_000_000 * 10**9)
    assert (second.path, nothing) == (b"empty", b"")


def test_times_have_nanoseconds() -> None:
    """Times are read with nanoseconds, also before 1970. Digits after the nanoseconds are dropped."""
    times = {"1.5": 1_500_000_000, "-2.25": -2_250_000_000, "3": 3_000_000_000, "0.1234567891": 123_456_789}
    for text, expected in times.items():
        ((member, _),) = read(layer(with_pax(file("a"), {"mtime": text})))
        assert member.mtime_ns == expected


def test_content_that_nobody_wants_is_passed_over() -> None:
    """The next header is found even if the content of the previous member was not read."""
    reader = TarReader([layer(file("a", b"a" * 5000), file("b", b"b"))], "it", LIMIT)
    assert [member.path for member in reader] == [b"a", b"b"]


FAULTY: Mapping[str, tuple[bytes, str]] = {
    "a checksum that is wrong": (b"x" + layer(file("aa"))[1:], "checksum"),
    "a type that nobody knows": (layer(special("a", b"Z")), "its type 'Z' is not supported"),
    "a sparse file": (layer(with_pax(file("a"), {"GNU.sparse.major": "1"})), "it is in a sparse format"),
    "an old sparse file": (layer(special("a", b"S")), "it is in a sparse format"),
    "a size that is no number": (patched(layer(file("a")), 124, b"12345678x\0"), "size"),
    "a size with a gap": (patched(layer(file("a")), 124, b"1 1\0"), "size"),
    "a negative size": (patched(layer(file("a")), 124, b"\xff" * 12), "negative"),
    "a negative owner": (patched(layer(file("a")), 108, b"\xff" * 8), "negative"),
    "a name with a NUL byte": (layer(with_pax(file("a"), {"path": "a\0b"})), "NUL byte"),
    "an owner that is no number": (layer(with_pax(file("a"), {"uid": "-1"})), "uid"),
    "a time that is none": (layer(with_pax(file("a"), {"mtime": "now"})), "mtime"),
    "an end in a header": (layer(file("a"))[:300], "truncated"),
    "an end in the content": (layer(file("a", bytes(5000)))[:2000], "truncated"),
    "no end mark": (layer(file("a"))[: 2 * BLOCK], "truncated"),
    "nothing": (b"", "truncated"),
}


@pytest.mark.parametrize("name", FAULTY)
def test_what_is_not_sound_is_refused(name: str) -> None:
    """H13: a malformed or truncated archive, or one with unsupported members, is refused."""
    data, reason = FAULTY[name]
    with pytest.raises(ImageError, match=reason) as caught:
        read(data)
    assert caught.value.code == "image-malformed"


@pytest.mark.parametrize(
    "records", [b"x", b"9 path=ab\n", b"10 path=ab ", b"5 ab\n", b"99 path=a\n", b"0 =\n", b"-5 a=b\n"]
)
def test_damaged_records_are_refused(records: bytes) -> None:
    """H13: an extended header with a wrong length, or without an equals sign or newline, is refused."""
    entry = tarfile.TarInfo("pax")
    entry.type, entry.size = tarfile.XHDTYPE, len(records)
    data = entry.tobuf(tarfile.USTAR_FORMAT) + records.ljust(BLOCK, b"\0") + layer(file("a"))
    with pytest.raises(ImageError) as caught:
        read(data)
    assert caught.value.code == "image-malformed"


def test_extended_headers_have_a_limit_together() -> None:
    """H14: the extended headers of a member have a total limit, which one huge header or many small ones exceed."""
    one = layer(with_pax(file("a"), {"comment": "x" * (LIMIT + 1)}))
    small = layer(with_pax(file("a"), {"comment": "x" * 1000}))
    many = small[: 4 * BLOCK - BLOCK] * 20 + small
    for data in (one, many):
        with pytest.raises(ImageError) as caught:
            read(data)
        assert caught.value.code == "image-too-large"


@given(st.binary(max_size=3 * BLOCK), st.integers(0, 5 * BLOCK))
def test_any_bytes_are_read_or_refused(noise: bytes, at: int) -> None:
    """H13: any damaged archive is either read or refused with an ``ImageError``. No other error is raised."""
    data = layer(with_pax(file("a" * 120, b"content"), {"mtime": "1.5"}), file("b"))
    try:
        read(data[:at] + noise + data[at + len(noise) :])
    except ImageError as error:
        assert error.code in {"image-malformed", "image-too-large"}  # noqa: PT017 - an error is not required
