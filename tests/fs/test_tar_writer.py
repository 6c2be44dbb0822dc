"""The tar writer writes archives that ``tarfile`` can read, with any names, and computes their digest."""

from __future__ import annotations

import hashlib
import io
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from securebench.fs.tar_writer import TarWriter

_NAMES = st.binary(min_size=1, max_size=300).filter(lambda name: not {0, ord("/")} & set(name))


@given(name=_NAMES, target=_NAMES, content=st.binary(max_size=2000))
def test_what_is_written_is_read(name: bytes, target: bytes, content: bytes) -> None:
    """H09: names and link targets of arbitrary bytes, contents, modes and types are read back unchanged."""
    output = io.BytesIO()
    with TarWriter(output) as archive:
        archive.file(name, len(content), (content,), 0o1750)
        archive.link(name, target)
        archive.directory(name, 0o700)
    data = output.getvalue()
    assert (archive.digest, archive.size) == (hashlib.sha256(data).hexdigest(), len(data))
    with tarfile.open(fileobj=io.BytesIO(data), encoding="utf-8", errors="surrogateescape") as read:
        file, link, directory = read.getmembers()
        found = read.extractfile(file)
        assert found is not None
        assert found.read() == content
    assert {member.name.encode("utf-8", "surrogateescape") for member in (file, link, directory)} == {name}
    assert link.linkname.encode("utf-8", "surrogateescape") == target
    assert (file.mode, directory.mode) == (0o1750, 0o700)
    assert (link.type, directory.type) == (tarfile.SYMTYPE, tarfile.DIRTYPE)


@pytest.mark.parametrize("size", [0, 1, 511, 512, 1024**2, 5 * 1024**2 + 3])
def test_pieces_make_no_difference(size: int) -> None:
    """The archive and its digest do not depend on the size of the pieces in which content is written."""
    content = bytes(index % 251 for index in range(size))
    digests = set()
    for step in (700, 300_000, 1024**2):
        output = io.BytesIO()
        with TarWriter(output) as archive:
            archive.file(b"name", size, (content[at : at + step] for at in range(0, size, step)))
        assert hashlib.sha256(output.getvalue()).hexdigest() == archive.digest
        digests.add(archive.digest)
    assert len(digests) == 1


def test_a_file_of_many_gigabytes_has_a_header() -> None:
    """A size that is too large for the octal digits of its field is written and read back correctly."""
    output = io.BytesIO()
    with TarWriter(output) as archive:
        archive.file(b"name", 9 * 1024**3, ())
    with tarfile.open(fileobj=io.BytesIO(output.getvalue())) as read:
        member = read.next()
        assert member is not None
        assert member.size == 9 * 1024**3
