"""Reading untrusted text files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from securebench.errors import ConfigError
from securebench.strict_input.files import read_text

if TYPE_CHECKING:
    from pathlib import Path


def code_of(path: Path, *, follow: bool = False) -> str:
    """Return the code of the error that reading ``path`` raises."""
    with pytest.raises(ConfigError) as caught:
        read_text(path, "file", 100, follow=follow)
    return caught.value.code


def test_text_is_read_with_its_bytes(tmp_path: Path) -> None:
    """A UTF-8 file is returned as its text and its bytes."""
    (tmp_path / "f").write_bytes("é\n".encode())
    assert read_text(tmp_path / "f", "file", 100) == ("é\n", "é\n".encode())


def test_what_is_not_a_regular_file_is_refused(tmp_path: Path) -> None:
    """K13: a missing file, a directory and a FIFO are refused without waiting.

    A link is accepted only with ``follow``. A link to itself is always refused.
    """
    (tmp_path / "real").write_text("x")
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "fifo")
    names = ("missing", ".", "link", "loop", "fifo")
    expected = ["file-missing", "file-not-regular", "file-not-regular", "file-not-regular", "file-not-regular"]
    assert [code_of(tmp_path / name) for name in names] == expected
    assert read_text(tmp_path / "link", "file", 100, follow=True)[0] == "x"
    assert code_of(tmp_path / "loop", follow=True) == "file-not-regular"


def test_odd_paths_are_refused(tmp_path: Path) -> None:
    """A path with a NUL or with a much too long name is refused with a configuration error."""
    assert code_of(tmp_path / "a\0b") == "file-unreadable"
    assert code_of(tmp_path / ("x" * 5000)) == "file-unreadable"


def test_too_much_is_refused(tmp_path: Path) -> None:
    """K08: a file that is larger than the limit is refused."""
    (tmp_path / "f").write_bytes(b"x" * 101)
    assert code_of(tmp_path / "f") == "file-too-large"


@pytest.mark.parametrize(
    ("data", "place"),
    [
        pytest.param(b"\xef\xbb\xbfa", (1, 1), id="K08-BOM"),
        pytest.param(b"ab\nc\0", (2, 2), id="K08-NUL"),
        pytest.param(b"a\n\xc3\xa9\xff", (2, 2), id="not-UTF-8"),
        pytest.param("a".encode("utf-16"), (1, 1), id="UTF-16"),
        pytest.param(b"\xed\xa0\x80", (1, 1), id="encoded-surrogate"),
    ],
)
def test_what_is_not_plain_utf8_is_refused_with_its_place(tmp_path: Path, data: bytes, place: tuple[int, int]) -> None:
    """K08: a byte order mark, a NUL or a byte that is not UTF-8 is refused, with its line and column."""
    (tmp_path / "f").write_bytes(data)
    with pytest.raises(ConfigError) as caught:
        read_text(tmp_path / "f", "file", 100)
    location = caught.value.problems[0].location
    assert caught.value.code == "file-encoding"
    assert location is not None
    assert (location.line, location.column) == place
