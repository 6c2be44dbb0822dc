"""One more authority is what OpenSSL's variable names, if that is a file with one."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import pytest
import trustme

from securebench.harnesses.authority import MAX_BYTES, VARIABLE, read_authority

if TYPE_CHECKING:
    from pathlib import Path


def test_without_the_variable_there_is_none() -> None:
    """Nothing is asked for and nothing told."""
    assert read_authority({}, pytest.fail) is None
    assert read_authority({VARIABLE: ""}, pytest.fail) is None


def test_certificates_are_taken_and_nothing_else(tmp_path: Path) -> None:
    """Comments in any language stand between them, and a key that was put into the file stays out."""
    first, second = trustme.CA().cert_pem.bytes(), trustme.CA().cert_pem.bytes()
    key = b"-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n"
    file = tmp_path / "ca.pem"
    file.write_bytes("# für uns\n".encode() + first + key + b"# \xff\n" + second)
    found = read_authority({VARIABLE: str(file)}, pytest.fail)
    assert found is not None
    assert found.encode() == first + second
    context = ssl.create_default_context()
    before = len(context.get_ca_certs())
    context.load_verify_locations(cadata=found)
    assert len(context.get_ca_certs()) == before + 2


@pytest.mark.parametrize("content", [None, b"", b"words", b"#" * (MAX_BYTES + 1)])
def test_a_file_that_is_none_is_told(tmp_path: Path, content: bytes | None) -> None:
    """A file that is not there, holds no certificate or is a whole system's is left out, and the tester hears of it."""
    heard: list[str] = []
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_bytes(content)
    assert read_authority({VARIABLE: str(file)}, heard.append) is None
    assert len(heard) == 1
    assert VARIABLE in heard[0]


@pytest.mark.parametrize("path", ["/dev", "a\0b", "x" * 5000])
def test_what_is_no_path_is_told(path: str) -> None:
    """A directory, or what cannot be a path, is no error of the run's."""
    heard: list[str] = []
    assert read_authority({VARIABLE: path}, heard.append) is None
    assert heard
