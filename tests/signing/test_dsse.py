"""DSSE envelopes are accepted only if they contain exactly what the expected key signed."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from securebench.signing import dsse
from securebench.signing.dsse import Envelope, signed_bytes
from securebench.signing.keys import PrivateKey

if TYPE_CHECKING:
    from collections.abc import Callable

KEY = PrivateKey.new()
ENVELOPE = Envelope.sign("application/vnd.in-toto+json", b'{"a":1}', KEY)


def test_a_round_trip() -> None:
    """An envelope that was written is read back unchanged, and its signature is valid."""
    assert Envelope.from_bytes(ENVELOPE.to_bytes()) == ENVELOPE
    ENVELOPE.verify(KEY.public)


def test_the_encoding_is_that_of_the_standard() -> None:
    """The bytes that are signed agree with the example in the DSSE specification."""
    assert signed_bytes("http://example.com/HelloWorld", b"hello world") == (
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"payload": b'{"a":2}'}, "was changed afterwards"),
        ({"payload_type": "text/plain"}, "was changed afterwards"),
        ({"signature": bytes(64)}, "was changed afterwards"),
        ({"signature": b""}, "0 bytes instead of 64"),
        ({"key_id": "0" * 64}, "but the file names the key '000"),
        ({"key_id": ""}, "but the file names the key ''"),
    ],
)
def test_a_changed_envelope_is_refused(changed: dict[str, Any], message: str) -> None:
    """An envelope is refused if its payload, type, signature or key id was changed."""
    with pytest.raises(ValueError, match=message):
        replace(ENVELOPE, **changed).verify(KEY.public)


def test_another_key_is_refused() -> None:
    """An envelope that another key signed is refused, even if it contains the id of the expected key."""
    other = PrivateKey.new()
    with pytest.raises(ValueError, match="the file names the key"):
        ENVELOPE.verify(other.public)
    with pytest.raises(ValueError, match="not signed with this key"):
        replace(ENVELOPE, key_id=other.public.id).verify(other.public)


def two_signatures(content: dict[str, Any]) -> None:
    """Repeat the signature."""
    content["signatures"] *= 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (two_signatures, "expected one signature, got 2"),
        (lambda content: content["signatures"].clear(), "expected one signature, got 0"),
        (lambda content: content.update(signatures={}), "wrong type"),
        (lambda content: content.update(signatures=["x"]), "exactly the keys 'keyid', 'sig'"),
        (lambda content: content.update(more=1), "exactly the keys 'payload', 'payloadType', 'signatures'"),
        (lambda content: content.pop("payloadType"), "exactly the keys"),
        (lambda content: content["signatures"][0].pop("keyid"), "exactly the keys"),
        (lambda content: content["signatures"][0].update(cert="x"), "exactly the keys"),
        (lambda content: content["signatures"][0].update(sig=1), "'sig' of the signature has the wrong type"),
        (lambda content: content.update(payload="e30 "), "base64"),
        (lambda content: content.update(payload="e31="), "not canonical base64"),
        (lambda content: content.update(payload="e3-_"), "base64"),
        (lambda content: content.update(payload="é"), "ascii|ASCII"),
    ],
)
def test_a_malformed_envelope_is_refused(change: Callable[[dict[str, Any]], object], message: str) -> None:
    """Missing and unknown fields, wrong types, and damage that lenient readers ignore are refused."""
    content = json.loads(ENVELOPE.to_bytes())
    change(content)
    with pytest.raises(ValueError, match=message):
        Envelope.from_bytes(json.dumps(content, ensure_ascii=False).encode("latin-1"))


def test_a_repeated_key_is_refused() -> None:
    """A repeated JSON key is refused, because two readers could use different values."""
    text = ENVELOPE.to_bytes().decode()
    with pytest.raises(ValueError, match="duplicate key"):
        Envelope.from_bytes(text.replace("{", '{"payload": "e30=",', 1).encode())


def test_every_truncation_is_refused() -> None:
    """An envelope that is cut off at any byte is refused, unless only the last newline is missing."""
    data = ENVELOPE.to_bytes()
    for end in range(len(data) - 1):
        with pytest.raises(ValueError, match=r"."):
            Envelope.from_bytes(data[:end])


def test_every_changed_byte_is_refused_or_means_the_same() -> None:
    """A flipped bit makes reading or verification fail, unless it is in the white space between values."""
    data = ENVELOPE.to_bytes()
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= 1
        try:
            read = Envelope.from_bytes(bytes(changed))
        except ValueError:
            continue
        if read == ENVELOPE:
            assert data[position : position + 1].isspace()
            continue
        with pytest.raises(ValueError, match=r"."):
            read.verify(KEY.public)


def test_a_huge_envelope_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """An envelope with too many bytes or too many JSON values is refused."""
    many = b'{"signatures": [' + b"1," * 1000 + b"1]}"
    with pytest.raises(ValueError, match="too many values"):
        Envelope.from_bytes(many)
    monkeypatch.setattr(dsse, "MAX_ENVELOPE", 100)
    with pytest.raises(ValueError, match="more than 100 bytes"):
        Envelope.from_bytes(ENVELOPE.to_bytes())


def test_an_independent_implementation_agrees() -> None:
    """The library securesystemslib, which is more lenient, reads the envelope and accepts its signature."""
    library, signer = map(pytest.importorskip, ("securesystemslib.dsse", "securesystemslib.signer"))
    read = library.Envelope.from_dict(json.loads(ENVELOPE.to_bytes()))
    key = signer.SSlibKey(KEY.public.id, "ed25519", "ed25519", {"public": KEY.public.raw.hex()})
    assert read.verify([key], 1) == {KEY.public.id: key}
    assert read.payload == ENVELOPE.payload
