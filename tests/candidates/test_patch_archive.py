"""Tests of the archive of a sealed patch: it can be read back, is deterministic, and is refused if it was altered."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from image_archives import directory, file, hard_link, layer
from securebench.candidates.patch_archive import read_patch, write_patch
from securebench.candidates.store import CandidateStore
from securebench.errors import StorageError
from securebench.fs.safe_open import TreeRefusedError
from securebench.patches.model import FileVersion
from securebench.tasks import CandidateKind

if TYPE_CHECKING:
    from pathlib import Path

    from image_archives import Part
    from securebench.patches.model import Delta

DELTA: Delta = {
    b"src/new": FileVersion(b"content\n", executable=True),
    b"gone": None,
    b"deep/gone": None,
    b"link": FileVersion(b"../\xff", link=True),
    b"a file\n\xff": FileVersion(b""),
}

_PARTS = st.binary(min_size=1, max_size=120).filter(
    lambda part: not {0, ord("/")} & set(part) and part not in {b".", b".."} and not part.startswith(b".wh.")
)
_VERSIONS = st.none() | st.builds(FileVersion, st.binary(max_size=600), st.booleans())


@given(delta=st.dictionaries(st.lists(_PARTS, min_size=1, max_size=3).map(b"/".join), _VERSIONS, max_size=5))
def test_what_is_sealed_is_what_is_judged(delta: Delta) -> None:
    """Changes with any valid path names are read back exactly as they were written."""
    assert read_patch([_written(delta)]) == delta


def test_a_link_comes_back() -> None:
    """A patch with symbolic links, removed files and paths that are not UTF-8 is read back as it was written."""
    assert read_patch([_written(DELTA)]) == DELTA


def test_the_order_makes_no_difference() -> None:
    """C23: the order in which changes were found makes no difference to the bytes of the archive."""
    assert _written(dict(reversed(list(DELTA.items())))) == _written(DELTA)


@pytest.mark.parametrize("path", [b".wh.x", b"a/.wh..wh..opq", b".wh.a/b"])
def test_the_mark_of_a_removal_is_no_name(path: bytes) -> None:
    """A path with a name that begins with ``.wh.`` is refused: in an image layer, such a name removes a file."""
    with pytest.raises(TreeRefusedError, match="the name is reserved for removed files"):
        _written({path: FileVersion(b"x")})


@pytest.mark.parametrize(
    "parts",
    [
        (directory("a"),),
        (file("a"), hard_link("b", "a")),
        (file("../a"),),
        (file("/a"),),
        (file("a//b"),),
        (file("a"), file("a")),
        (file("a"), file(".wh.a", b"")),
    ],
)
def test_nothing_else_is_read(parts: tuple[Part, ...]) -> None:
    """H13: an archive with entries that ``write_patch`` never writes is refused as altered."""
    with pytest.raises(StorageError) as refused:
        read_patch([layer(*parts)])
    assert refused.value.code == "candidate-altered"


def test_the_store_keeps_a_patch(tmp_path: Path) -> None:
    """A patch is loaded by its digest, and its changes are read as they were sealed. Its text is not stored."""
    store = CandidateStore(tmp_path / "candidates")
    sealed = store.seal_patch(DELTA, "as people see it")
    assert (sealed.kind, sealed.text) == (CandidateKind.PATCH, "as people see it")
    loaded = store.load(CandidateKind.PATCH, sealed.digest)
    assert (loaded.digest, loaded.size, loaded.text) == (sealed.digest, sealed.size, None)
    assert store.read_patch(loaded) == DELTA


def test_a_patch_that_was_changed_is_noticed(tmp_path: Path) -> None:
    """M04: a patch whose content no longer matches the digest in its file name is refused."""
    store = CandidateStore(tmp_path / "candidates")
    sealed = store.seal_patch(DELTA, "")
    sealed.path.chmod(0o600)
    data = bytearray(sealed.path.read_bytes())
    data[data.index(b"content\n")] ^= 1
    sealed.path.write_bytes(bytes(data))
    with pytest.raises(StorageError) as refused:
        store.read_patch(sealed)
    assert refused.value.code == "candidate-altered"


def _written(delta: Delta) -> bytes:
    output = io.BytesIO()
    write_patch(delta, output)
    return output.getvalue()
