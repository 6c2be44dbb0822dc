"""DSSE envelopes (v1.0) with exactly one Ed25519 signature.

The envelopes of the library securesystemslib are not used: its reader ignores unknown fields, accepts any
number of signatures, accepts base64 that is not canonical, and selects the key by the key id, which an attacker can
choose.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from securebench.limits import MIB
from securebench.strict_input.json_text import decode_json

if TYPE_CHECKING:
    from securebench.signing.keys import PublicKey, Signer

MAX_ENVELOPE: Final = 64 * MIB
"""Maximum size of an envelope, in bytes: enough for the ids of several hundred thousand trials."""

_SIGNATURE_BYTES: Final = 64
_MAX_VALUES: Final = 16
"""Maximum number of JSON values. An envelope with one signature has seven."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """A payload, its media type, its signature, and the id of the key that the signer claims to have used."""

    payload_type: str
    payload: bytes
    key_id: str
    signature: bytes

    @classmethod
    def sign(cls, payload_type: str, payload: bytes, signer: Signer) -> Self:
        """Return a signed envelope. Raises :class:`ConfigError` (``key-unusable``)."""
        signature = signer.sign(signed_bytes(payload_type, payload))
        return cls(payload_type, payload, signer.public.id, signature)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read an envelope strictly. Raises ``ValueError`` with what is wrong. The signature is not checked."""
        if len(data) > MAX_ENVELOPE:
            raise ValueError(f"it has more than {MAX_ENVELOPE} bytes")
        content, _ = decode_json(data.decode("ascii"), _MAX_VALUES)
        fields = _fields(content, "the envelope", {"payload": str, "payloadType": str, "signatures": list})
        if len(fields["signatures"]) != 1:
            raise ValueError(f"expected one signature, got {len(fields['signatures'])}")
        signature = _fields(fields["signatures"][0], "the signature", {"keyid": str, "sig": str})
        return cls(
            payload_type=fields["payloadType"],
            payload=_decoded(fields["payload"], "payload"),
            key_id=signature["keyid"],
            signature=_decoded(signature["sig"], "sig"),
        )

    def to_bytes(self) -> bytes:
        """Return the envelope as indented JSON, for human readers."""
        signature = {"keyid": self.key_id, "sig": _encoded(self.signature)}
        content = {"payloadType": self.payload_type, "payload": _encoded(self.payload), "signatures": [signature]}
        return (json.dumps(content, indent=2) + "\n").encode("ascii")

    def verify(self, key: PublicKey) -> None:
        """Raise ``ValueError`` unless ``key`` made the signature and ``key_id`` is the id of ``key``."""
        if len(self.signature) != _SIGNATURE_BYTES:
            raise ValueError(f"the signature has {len(self.signature)} bytes instead of {_SIGNATURE_BYTES}")
        if not key.has_signed(signed_bytes(self.payload_type, self.payload), self.signature):
            other = "" if self.key_id == key.id else f"; the file names the key {self.key_id!r}, not {key.id!r}"
            raise ValueError(f"the content was not signed with this key, or was changed afterwards{other}")
        if self.key_id != key.id:
            raise ValueError(f"the content was signed with key {key.id!r}, but the file names the key {self.key_id!r}")


def signed_bytes(payload_type: str, payload: bytes) -> bytes:
    """Return what is signed: DSSE's pre-authentication encoding, which is unambiguous."""
    kind = payload_type.encode("utf-8")
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def _fields(value: Any, what: str, kinds: dict[str, type]) -> dict[str, Any]:
    """Return ``value`` if it is an object with exactly the keys and types of ``kinds``. Raises ``ValueError``."""
    if not isinstance(value, dict) or value.keys() != kinds.keys():
        raise ValueError(f"{what} must have exactly the keys {', '.join(map(repr, sorted(kinds)))}")
    for name, kind in kinds.items():
        if not isinstance(value[name], kind):
            raise ValueError(f"{name!r} of {what} has the wrong type")  # noqa: TRY004 - the content of a file
    return value


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _decoded(text: str, name: str) -> bytes:
    """Return the bytes that ``text`` encodes. Raises ``ValueError`` if ``text`` is not canonical base64."""
    data = base64.b64decode(text, validate=True)
    if _encoded(data) != text:
        raise ValueError(f"{name!r} is not canonical base64")
    return data
