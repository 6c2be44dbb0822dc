"""A Sigstore for tests, on this machine: certificate authority, certificate log and transparency log.

It answers the real client of the library sigstore over HTTP on 127.0.0.1, like Fulcio and Rekor (version 1). It does
not check identity tokens: it certifies whatever identity a token claims.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import rfc8785
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ISSUER = "https://issuer.test"
_ISSUER_OID = ObjectIdentifier("1.3.6.1.4.1.57264.1.1")
_SCT_OID = ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")


def token(identity: str, issuer: str = ISSUER) -> str:
    """Return an identity token like those that CI services give to their jobs. Its signature is not valid."""
    now = int(time.time())
    claims = {"iss": issuer, "sub": identity, "aud": "sigstore", "iat": now - 5, "nbf": now - 5, "exp": now + 600}
    parts = ({"alg": "RS256", "typ": "JWT"}, claims)
    texts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return ".".join([*texts, "c2lnbmF0dXJl"])


def _key_id(key: ec.EllipticCurvePrivateKey) -> bytes:
    return hashlib.sha256(_der(key)).digest()


def _der(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


class SigstoreAuthority:
    """The keys of the authority and the answers of its services."""

    def __init__(self) -> None:
        self._ca, self._ct, self._rekor = (ec.generate_private_key(ec.SECP256R1()) for _ in range(3))
        self._began = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        self._root = (
            self._certificate(self._name, self._ca, timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(key_cert_sign=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._ca.public_key()), critical=False)
            .sign(self._ca, SHA256())
        )
        self._entries: list[bytes] = []

    def trust_config(self, url: str) -> dict[str, Any]:
        """Return the trust configuration for a client, with all services at ``url``."""
        began = {"start": self._began.isoformat().replace("+00:00", "Z")}
        service = {"url": url, "majorApiVersion": 1, "validFor": began, "operator": "test"}
        logs = [
            {
                "baseUrl": url,
                "hashAlgorithm": "SHA2_256",
                "publicKey": {"rawBytes": _b64(_der(key)), "keyDetails": "PKIX_ECDSA_P256_SHA_256", "validFor": began},
                "logId": {"keyId": _b64(_key_id(key))},
            }
            for key in (self._rekor, self._ct)
        ]
        certificate = _b64(self._root.public_bytes(Encoding.DER))
        authority = {
            "subject": {"organization": "test", "commonName": "test authority"},
            "certChain": {"certificates": [{"rawBytes": certificate}]},
            "validFor": began,
        }
        return {
            "mediaType": "application/vnd.dev.sigstore.clienttrustconfig.v0.1+json",
            "trustedRoot": {
                "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
                "tlogs": logs[:1],
                "certificateAuthorities": [authority],
                "ctlogs": logs[1:],
            },
            "signingConfig": {
                "mediaType": "application/vnd.dev.sigstore.signingconfig.v0.2+json",
                "caUrls": [service],
                "oidcUrls": [service],
                "rekorTlogUrls": [service],
                "rekorTlogConfig": {"selector": "ANY"},
            },
        }

    def certify(self, request: dict[str, Any], identity: str, issuer: str) -> dict[str, Any]:
        """Answer a request for a certificate, as Fulcio does."""
        csr = x509.load_pem_x509_csr(base64.b64decode(request["certificateSigningRequest"]))
        public = csr.public_key()
        assert isinstance(public, ec.EllipticCurvePublicKey)
        builder = (
            self._certificate(x509.Name([]), public, timedelta(minutes=10), datetime.now(UTC))
            .add_extension(_usage(digital_signature=True), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._ca.public_key()), critical=False)
            .add_extension(x509.SubjectAlternativeName([x509.UniformResourceIdentifier(identity)]), critical=True)
            .add_extension(x509.UnrecognizedExtension(_ISSUER_OID, issuer.encode()), critical=False)
        )
        logged = builder.add_extension(
            x509.UnrecognizedExtension(_SCT_OID, self._timestamp(builder.sign(self._ca, SHA256()))), critical=False
        ).sign(self._ca, SHA256())
        chain = [certificate.public_bytes(Encoding.PEM).decode() for certificate in (logged, self._root)]
        return {"signedCertificateEmbeddedSct": {"chain": {"certificates": chain}}}

    def log(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer a request to log an envelope, as Rekor does."""
        proposed = request["spec"]["proposedContent"]
        envelope = json.loads(proposed["envelope"])
        digest = {"algorithm": "sha256", "value": hashlib.sha256(proposed["envelope"].encode()).hexdigest()}
        payload = hashlib.sha256(base64.b64decode(envelope["payload"])).hexdigest()
        signature = {"signature": envelope["signatures"][0]["sig"], "verifier": proposed["verifiers"][0]}
        spec: dict[str, Any] = {
            "envelopeHash": digest,
            "payloadHash": {**digest, "value": payload},
            "signatures": [signature],
        }
        body = rfc8785.dumps({"apiVersion": "0.0.1", "kind": "dsse", "spec": spec})
        self._entries.append(body)
        return {"entry": self._entry(body)}

    def _entry(self, body: bytes) -> dict[str, Any]:
        """Return the log's answer for an entry. Each entry is the only one in a Merkle tree of its own."""
        root = hashlib.sha256(b"\0" + body).digest()
        note = f"log.test - 1\n1\n{_b64(root)}\n"
        signed = _key_id(self._rekor)[:4] + self._rekor.sign(note.encode(), ec.ECDSA(SHA256()))
        entry: dict[str, Any] = {
            "body": _b64(body),
            "integratedTime": int(time.time()),
            "logID": _key_id(self._rekor).hex(),
            "logIndex": len(self._entries),
        }
        promise = self._rekor.sign(rfc8785.dumps(entry), ec.ECDSA(SHA256()))
        proof = {
            "logIndex": 0,
            "rootHash": root.hex(),
            "treeSize": 1,
            "hashes": [],
            "checkpoint": f"{note}\n— log.test {_b64(signed)}\n",
        }
        return {**entry, "verification": {"inclusionProof": proof, "signedEntryTimestamp": _b64(promise)}}

    def _timestamp(self, unlogged: x509.Certificate) -> bytes:
        """Return the extension with one signed certificate timestamp (RFC 6962, 3.2 and 3.3)."""
        when = int(time.time() * 1000).to_bytes(8, "big")
        tbs = unlogged.tbs_certificate_bytes
        entry = hashlib.sha256(_der(self._ca)).digest() + len(tbs).to_bytes(3, "big") + tbs
        signature = self._ct.sign(b"\0\0" + when + b"\0\1" + entry + b"\0\0", ec.ECDSA(SHA256()))
        signed = b"\x04\x03" + len(signature).to_bytes(2, "big") + signature  # SHA-256 with ECDSA
        timestamp = b"\0" + _key_id(self._ct) + when + b"\0\0" + signed
        listed = len(timestamp).to_bytes(2, "big") + timestamp
        listed = len(listed).to_bytes(2, "big") + listed
        assert len(listed) < 256
        return b"\x04" + (b"\x81" if len(listed) > 127 else b"") + bytes([len(listed)]) + listed

    def _certificate(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey | ec.EllipticCurvePublicKey,
        lifetime: timedelta,
        begins: datetime | None = None,
    ) -> x509.CertificateBuilder:
        begins = (begins or self._began) - timedelta(seconds=5)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key() if isinstance(key, ec.EllipticCurvePrivateKey) else key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(begins)
            .not_valid_after(begins + lifetime)
        )


def _usage(**given: bool) -> x509.KeyUsage:
    names = (
        "digital_signature",
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "key_cert_sign",
        "crl_sign",
        "encipher_only",
        "decipher_only",
    )
    return x509.KeyUsage(**{name: given.get(name, False) for name in names})


@contextmanager
def sigstore_authority(directory: Path) -> Iterator[Path]:
    """Serve an authority, and yield the path of its trust configuration."""
    authority = SigstoreAuthority()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path == "/api/v2/signingCert":
                middle = self.headers["Authorization"].split(".")[1]
                claims = json.loads(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))
                answer = authority.certify(request, claims["sub"], claims["iss"])
            else:
                answer = authority.log(request)
            data = json.dumps(answer).encode()
            self.send_response(201)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        file = directory / "trust-config.json"
        file.write_text(json.dumps(authority.trust_config(f"http://127.0.0.1:{server.server_port}")))
        yield file
        server.shutdown()
