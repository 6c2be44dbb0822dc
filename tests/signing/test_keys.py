"""Ed25519 keys: their text forms agree with those of OpenSSH and OpenSSL, and keys of other types are refused."""

from __future__ import annotations

import hashlib
import pickle
import subprocess
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_public_key,
)

from securebench.errors import ConfigError
from securebench.signing.keys import PrivateKey, PublicKey, decode_private, decode_public
from ssh_agents import make_ssh_key

if TYPE_CHECKING:
    from pathlib import Path

RFC_8032 = PublicKey(bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"))
"""The public key of the first test vector of RFC 8032, section 7.1."""


def none() -> bytes:
    """Fail the test: no passphrase may be requested for a key without one."""
    raise AssertionError


def test_a_signature_is_that_of_the_standard() -> None:
    """The signature in RFC 8032 is valid for the empty message that was signed.

    It is not valid for another message, and a truncated signature is not valid.
    """
    signature = bytes.fromhex(
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"
    )
    assert RFC_8032.has_signed(b"", signature)
    assert not RFC_8032.has_signed(b"x", signature)
    assert not RFC_8032.has_signed(b"", signature[:-1])


def test_the_forms_of_a_public_key() -> None:
    """Both text forms of a public key are read back. The key id is the SHA-256 digest of the DER form."""
    key = PrivateKey.new().public
    assert decode_public(f"{key.openssh} someone@example\n".encode()) == key
    assert decode_public(key.pem.encode()) == key
    der = load_pem_public_key(key.pem.encode()).public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    assert key.id == hashlib.sha256(der).hexdigest()


def test_a_key_of_openssh_is_read(tmp_path: Path) -> None:
    """Private and public keys of OpenSSH are read, and the fingerprint is the one that ssh-keygen prints."""
    path = make_ssh_key(tmp_path / "id")
    public = decode_public((tmp_path / "id.pub").read_bytes())
    assert decode_private(path.read_bytes(), none).public == public
    printed = subprocess.run(["ssh-keygen", "-l", "-f", str(path)], check=True, capture_output=True, text=True).stdout
    assert public.fingerprint in printed.split()


def test_an_encrypted_key_needs_its_passphrase() -> None:
    """A wrong or empty passphrase is reported as wrong."""
    key = PrivateKey.new()
    data = key.pem(b"open sesame")
    assert decode_private(data, lambda: b"open sesame").public == key.public
    for wrong in (b"guess", b""):
        with pytest.raises(ConfigError, match="passphrase is wrong") as refused:
            decode_private(data, lambda wrong=wrong: wrong)  # type: ignore[misc]
        assert refused.value.code == "key-passphrase"


def test_an_encrypted_key_of_openssh_is_for_the_agent(tmp_path: Path) -> None:
    """Without the library bcrypt, an encrypted OpenSSH key cannot be decrypted, and the error suggests ssh-add."""
    path = make_ssh_key(tmp_path / "id", passphrase="open sesame")
    with pytest.raises(ValueError, match="ssh-add"):
        decode_private(path.read_bytes(), lambda: b"open sesame")


@pytest.mark.parametrize("form", [PrivateFormat.PKCS8, PrivateFormat.OpenSSH])
def test_only_ed25519_is_accepted(form: PrivateFormat) -> None:
    """A private or public key of another type is refused."""
    other = generate_private_key(SECP256R1())
    with pytest.raises(ValueError, match="Ed25519"):
        decode_private(other.private_bytes(Encoding.PEM, form, NoEncryption()), none)
    with pytest.raises(ValueError, match="Ed25519"):
        decode_public(other.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    with pytest.raises(ValueError, match="Ed25519"):
        decode_public(other.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"ssh-ed25519 AAAA",
        b"ssh-ed25519 !!",
        b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
        RFC_8032.openssh[:-8].encode(),
        f"{RFC_8032.openssh}\n{RFC_8032.openssh}".encode(),
        b"\xff\xfe",
    ],
)
def test_anything_else_is_not_a_public_key(data: bytes) -> None:
    """Any data that is not an Ed25519 public key raises a ValueError."""
    with pytest.raises(ValueError, match=r"."):
        decode_public(data)


@pytest.mark.parametrize("start", ["PRIVATE KEY", "ENCRYPTED PRIVATE KEY", "OPENSSH PRIVATE KEY", "RSA PRIVATE KEY"])
def test_anything_else_is_not_a_private_key(start: str) -> None:
    """A PEM block raises a ValueError if its first line announces a private key but its content is invalid."""
    for content in ("", "AAAA", "!"):
        with pytest.raises(ValueError, match=r"."):
            decode_private(f"-----BEGIN {start}-----\n{content}\n-----END {start}-----\n".encode(), lambda: b"x")


def test_a_private_key_is_neither_printed_nor_sent_to_another_process() -> None:
    """The ``repr`` of a private key shows only its fingerprint, and the key cannot be pickled."""
    key = PrivateKey.new()
    assert repr(key) == f"<private key of {key.public.fingerprint}>"
    with pytest.raises(TypeError):
        pickle.dumps(key)
