"""Ed25519 keys and their text forms. Nothing here depends on where a key is stored."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
    load_ssh_private_key,
    load_ssh_public_key,
)

from securebench.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    Passphrase = Callable[[], bytes]
    """A function that returns a passphrase, called only for an encrypted key. It may raise :class:`ConfigError`."""

SSH_NAME: Final = b"ssh-ed25519"

_OPENSSH_PRIVATE: Final = b"-----BEGIN OPENSSH PRIVATE KEY-----"
_ENCRYPTED_PEM: Final = b"-----BEGIN ENCRYPTED PRIVATE KEY-----"
_PEM: Final = b"-----BEGIN PRIVATE KEY-----"
_PEM_PUBLIC: Final = b"-----BEGIN PUBLIC KEY-----"
_FORMS: Final = "an Ed25519 key as a PEM file (private: PKCS #8) or in OpenSSH format"


@dataclass(frozen=True, slots=True)
class PublicKey:
    """An Ed25519 public key: the 32 bytes of RFC 8032."""

    raw: bytes

    @property
    def id(self) -> str:
        """The sha256 (hex) of the key's DER form, SubjectPublicKeyInfo of RFC 8410."""
        return hashlib.sha256(self._loaded.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()

    @property
    def fingerprint(self) -> str:
        """The fingerprint that ``ssh-keygen -l`` prints: ``SHA256:…``."""
        digest = base64.b64encode(hashlib.sha256(self.ssh_blob).digest()).decode("ascii")
        return f"SHA256:{digest.rstrip('=')}"

    @property
    def ssh_blob(self) -> bytes:
        """The key as the SSH protocol encodes it: two strings, each preceded by its length (RFC 8709)."""
        return b"".join(len(part).to_bytes(4, "big") + part for part in (SSH_NAME, self.raw))

    @property
    def openssh(self) -> str:
        """The line of a ``.pub`` file, without a comment."""
        return f"{SSH_NAME.decode('ascii')} {base64.b64encode(self.ssh_blob).decode('ascii')}"

    @property
    def pem(self) -> str:
        """The key as PEM."""
        return self._loaded.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode("ascii")

    def has_signed(self, data: bytes, signature: bytes) -> bool:
        """Return whether ``signature`` is a signature of ``data`` with this key."""
        try:
            self._loaded.verify(signature, data)
        except InvalidSignature:
            return False
        return True

    @property
    def _loaded(self) -> Ed25519PublicKey:
        return Ed25519PublicKey.from_public_bytes(self.raw)


class Signer(Protocol):
    """Signs bytes with an Ed25519 key. The private key may be in another process, such as an ssh-agent."""

    @property
    def public(self) -> PublicKey:
        """The key that checks the signatures."""

    def sign(self, data: bytes) -> bytes:
        """Return the 64-byte signature of ``data``. Raises :class:`ConfigError` (``key-unusable``)."""


class PrivateKey:
    """An Ed25519 private key in memory."""

    def __init__(self, loaded: Ed25519PrivateKey) -> None:
        self._loaded = loaded
        self.public = PublicKey(loaded.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw))

    def __repr__(self) -> str:
        return f"<private key of {self.public.fingerprint}>"

    def __reduce__(self) -> str:
        raise TypeError("a private key cannot be pickled: it stays in the process that loaded it")

    @classmethod
    def new(cls) -> PrivateKey:
        """Return a new random key."""
        return cls(Ed25519PrivateKey.generate())

    def sign(self, data: bytes) -> bytes:
        """Return the 64-byte signature of ``data``."""
        return self._loaded.sign(data)

    def pem(self, passphrase: bytes = b"") -> bytes:
        """Return the key as PKCS #8 PEM, encrypted if there is a ``passphrase``."""
        encryption = BestAvailableEncryption(passphrase) if passphrase else NoEncryption()
        return self._loaded.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)


def is_private(data: bytes) -> bool:
    """Return whether the text of a key file claims to be a private key."""
    return data.startswith((_PEM, _ENCRYPTED_PEM, _OPENSSH_PRIVATE))


def decode_public(data: bytes) -> PublicKey:
    """Return the public key of a PEM or ``.pub`` file. Raises ``ValueError``."""
    data = data.strip()
    try:
        if data.startswith(_PEM_PUBLIC):
            loaded: object = load_pem_public_key(data)
        elif data.startswith(SSH_NAME + b" ") and b"\n" not in data:
            loaded = load_ssh_public_key(data)
        else:
            raise ValueError(f"expected {_FORMS}")
    except UnsupportedAlgorithm as error:
        raise ValueError(str(error)) from error
    if not isinstance(loaded, Ed25519PublicKey):
        raise ValueError("only Ed25519 keys are supported")  # noqa: TRY004 - the content of a file
    return PublicKey(loaded.public_bytes(Encoding.Raw, PublicFormat.Raw))


def decode_private(data: bytes, passphrase: Passphrase) -> PrivateKey:
    """Return the private key of a PEM or OpenSSH file.

    Raises ``ValueError`` for other content, and for an encrypted OpenSSH key if the library bcrypt is missing. Raises
    :class:`ConfigError` (``key-passphrase``) for a wrong passphrase.
    """
    load = load_ssh_private_key if data.startswith(_OPENSSH_PRIVATE) else load_pem_private_key
    if not is_private(data):
        raise ValueError(f"expected {_FORMS}")
    secret = None
    try:
        try:
            loaded: object = load(data, None)
        except TypeError:  # both functions raise this error for an encrypted key
            secret = passphrase()
            loaded = load(data, secret or b"\0")
    except UnsupportedAlgorithm as error:  # an encrypted OpenSSH key needs the library bcrypt
        raise ValueError(
            f"{error}; add the key to ssh-agent (ssh-add FILE) and pass the public key, FILE.pub, instead"
        ) from error
    except ValueError:
        if secret is None:
            raise ValueError(f"expected {_FORMS}") from None
        raise ConfigError("the passphrase is wrong", code="key-passphrase", hint="try again") from None
    if not isinstance(loaded, Ed25519PrivateKey):
        raise ValueError("only Ed25519 keys are supported")  # noqa: TRY004 - the content of a file
    return PrivateKey(loaded)
