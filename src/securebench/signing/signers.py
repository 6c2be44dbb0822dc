"""The signers of statements: a key, or an identity that Sigstore certifies. Each writes its own kind of file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from securebench.errors import ConfigError
from securebench.signing.dsse import Envelope
from securebench.signing.statement import PAYLOAD_TYPE

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from securebench.signing.keys import PublicKey, Signer

ENVELOPE_SUFFIX: Final = ".dsse.json"
BUNDLE_SUFFIX: Final = ".sigstore.json"

_TRIAL_TYPE: Final = "application/vnd.securebench.key-trial"


class StatementSigner(Protocol):
    """Signs statements, and recognizes its own signatures."""

    suffix: str
    """The suffix of the names of its signature files."""
    secrets: tuple[Path, ...]
    """Files that no agent may read: those of the key and of its passphrase."""

    @property
    def name(self) -> str:
        """The name of the signer in messages."""

    def try_out(self) -> None:
        """Check that this signer can sign. Raises :class:`ConfigError`."""

    def sign(self, payload: bytes) -> bytes:
        """Return the content of the signature file for the statement ``payload``. Raises :class:`ConfigError`."""

    def open(self, data: bytes) -> bytes:
        """Return the statement in a signature file.

        Raises ``ValueError`` unless this signer signed it, and :class:`ConfigError` if that cannot be checked here.
        """


class KeySigner:
    """Signs with an Ed25519 key."""

    suffix = ENVELOPE_SUFFIX

    def __init__(self, key: Signer, secrets: Iterable[Path] = ()) -> None:
        self._key = key
        self.secrets = tuple(secrets)

    @property
    def name(self) -> str:
        """See :class:`StatementSigner`."""
        return f"key {self._key.public.fingerprint}"

    def try_out(self) -> None:
        """See :class:`StatementSigner`."""
        try:
            Envelope.sign(_TRIAL_TYPE, b"", self._key).verify(self._key.public)
        except ValueError as error:
            hint = "use another key, or repair the ssh-agent"
            raise ConfigError(
                f"the {self.name} made an invalid signature: {error}", code="key-unusable", hint=hint
            ) from None

    def sign(self, payload: bytes) -> bytes:
        """See :class:`StatementSigner`."""
        return Envelope.sign(PAYLOAD_TYPE, payload, self._key).to_bytes()

    def open(self, data: bytes) -> bytes:
        """See :class:`StatementSigner`."""
        return open_envelope(data, self._key.public).payload


def open_envelope(data: bytes, key: PublicKey | None) -> Envelope:
    """Return the envelope of a statement. Without ``key``, the signature is not checked. Raises ``ValueError``."""
    envelope = Envelope.from_bytes(data)
    if key is not None:
        envelope.verify(key)
    if envelope.payload_type != PAYLOAD_TYPE:
        raise ValueError(f"it signs {envelope.payload_type[:80]!r}, not a statement about results")
    return envelope
