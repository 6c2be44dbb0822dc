"""Additional CA certificates are read from the file that OpenSSL's variable names."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import trustme

from securebench.harnesses.provider.ca_bundle import MAX_BYTES, MAX_FILE, VARIABLE, read_ca_bundle


def test_without_the_variable_there_is_none() -> None:
    """If the variable is unset or empty, there is no bundle and no warning."""
    assert read_ca_bundle({}, pytest.fail) is None
    assert read_ca_bundle({VARIABLE: ""}, pytest.fail) is None


def test_certificates_are_taken_and_nothing_else(tmp_path: Path) -> None:
    """Only the certificates of a file are taken: comments in any encoding and a private key are left out."""
    first, second = trustme.CA().cert_pem.bytes(), trustme.CA().cert_pem.bytes()
    key = b"-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n"
    file = tmp_path / "ca.pem"
    file.write_bytes("# für uns\n".encode() + first + key + b"# \xff\n" + second)
    found = read_ca_bundle({VARIABLE: str(file)}, pytest.fail)
    assert found is not None
    assert found.encode() == first + second
    context = ssl.create_default_context()
    before = len(context.get_ca_certs())
    context.load_verify_locations(cadata=found)
    assert len(context.get_ca_certs()) == before + 2


@pytest.mark.parametrize("content", [None, b"", b"words", b"#" * (MAX_FILE + 1)])
def test_a_file_that_is_none_is_told(tmp_path: Path, content: bytes | None) -> None:
    """A file that is missing, has no certificate or is too large is ignored with one warning."""
    warnings: list[str] = []
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_bytes(content)
    assert read_ca_bundle({VARIABLE: str(file)}, warnings.append) is None
    assert len(warnings) == 1
    assert VARIABLE in warnings[0]


@pytest.mark.parametrize("path", ["/dev", "a\0b", "x" * 5000])
def test_what_is_no_path_is_told(path: str) -> None:
    """A directory, or a text that cannot be a path, is ignored with a warning and raises nothing."""
    warnings: list[str] = []
    assert read_ca_bundle({VARIABLE: path}, warnings.append) is None
    assert warnings


def test_what_the_system_knows_is_not_told_again(tmp_path: Path) -> None:
    """A certificate that the system already has is left out without a warning; a new one beside it is taken."""
    known = next(Path(ssl.get_default_verify_paths().openssl_capath).glob("*.pem"), None)
    if known is None:
        pytest.skip("this system keeps no certificates in files")
    file = tmp_path / "ca.pem"
    file.write_bytes(known.read_bytes())
    assert read_ca_bundle({VARIABLE: str(file)}, pytest.fail) is None
    own = trustme.CA().cert_pem.bytes()
    file.write_bytes(known.read_bytes() + own)
    found = read_ca_bundle({VARIABLE: str(file)}, pytest.fail)
    assert found is not None
    assert found.encode() == own


def test_too_many_are_told(tmp_path: Path) -> None:
    """If the additional certificates exceed ``MAX_BYTES``, all of them are ignored with a warning."""
    warnings: list[str] = []
    file = tmp_path / "ca.pem"
    body = b"-----BEGIN CERTIFICATE-----\n%08d\n-----END CERTIFICATE-----\n"
    file.write_bytes(b"".join(body % number for number in range(MAX_BYTES // 50)))
    assert read_ca_bundle({VARIABLE: str(file)}, warnings.append) is None
    assert warnings
