"""Sigstore bundles: signed by an identity, such as a workflow of a CI service, instead of a key that a user keeps.

Signing needs a network: the certificate authority certifies the identity for ten minutes, and a public log records the
signature. Checking needs none: the bundle contains the proofs. The extra ``securebench[sigstore]`` installs
the library ``sigstore``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from securebench.errors import ConfigError, SecureBenchError
from securebench.signing.dsse import MAX_ENVELOPE
from securebench.signing.signers import BUNDLE_SUFFIX
from securebench.signing.statement import PAYLOAD_TYPE

if TYPE_CHECKING:
    from sigstore.models import ClientTrustConfig

TRUST_VARIABLE: Final = "SECUREBENCH_SIGSTORE_TRUST_CONFIG"
"""The environment variable with the path of a trust configuration, for a Sigstore other than the public one."""


@dataclass(frozen=True, slots=True)
class SigstoreIdentity:
    """Who signed: the subject of the certificate, such as the URL of a workflow, and its OIDC issuer."""

    identity: str
    issuer: str


class SigstoreSigner:
    """Signs with the identity that the CI service gives to this job."""

    suffix = BUNDLE_SUFFIX
    secrets: tuple[Path, ...] = ()
    name = "Sigstore identity of this job"

    def try_out(self) -> None:
        """Check that the library and an identity are available.

        It signs nothing, because the log keeps every signature forever.
        """
        _token()
        trust_config()

    def sign(self, payload: bytes) -> bytes:
        """Return a bundle. Raises :class:`ConfigError` (``sigstore-failed``)."""
        from sigstore.dsse import Statement
        from sigstore.sign import SigningContext

        try:
            context = SigningContext.from_trust_config(trust_config(offline=False))
            with context.signer(_token()) as signer:
                return signer.sign_dsse(Statement(payload)).to_json().encode()
        except SecureBenchError:
            raise
        except Exception as error:  # the library does not wrap errors of HTTP, JSON, certificates and tokens
            raise _failed(f"Sigstore did not sign: {type(error).__name__}: {error}") from error

    def open(self, data: bytes) -> bytes:
        """Return the statement of a bundle that the identity of this job signed.

        Raises the errors of :func:`verify_sigstore_bundle`, and :class:`ConfigError` if this job has no identity.
        """
        token = _token()
        return verify_sigstore_bundle(data, SigstoreIdentity(token.identity, token.federated_issuer))


def verify_sigstore_bundle(data: bytes, signer: SigstoreIdentity) -> bytes:
    """Return the statement that ``signer`` signed. Nothing is requested from a network.

    Raises ``ValueError`` if the bundle is invalid or from another identity, and :class:`ConfigError` if it cannot be
    checked here: ``extra-missing``, ``sigstore-failed``.
    """
    if len(data) > MAX_ENVELOPE:
        raise ValueError(f"it has more than {MAX_ENVELOPE} bytes")
    trusted_root = trust_config().trusted_root
    from sigstore.models import Bundle
    from sigstore.verify import Verifier
    from sigstore.verify.policy import Identity

    # With an empty issuer, the policy would accept certificates of every issuer.
    policy = Identity(identity=signer.identity, issuer=signer.issuer or "(none)")
    try:
        kind, payload = Verifier(trusted_root=trusted_root).verify_dsse(Bundle.from_json(data), policy)
    except Exception as error:  # a hostile bundle can make any part of the library fail
        raise ValueError(f"{type(error).__name__}: {error}") from error
    if kind != PAYLOAD_TYPE:
        raise ValueError(f"it signs {kind[:80]!r}, not a statement about results")
    return payload


def trust_config(*, offline: bool = True) -> ClientTrustConfig:
    """Return the trust configuration.

    If ``SECUREBENCH_SIGSTORE_TRUST_CONFIG`` is set, it names a file with the trust configuration of another Sigstore.
    Otherwise, return the trust configuration of the public Sigstore.

    With ``offline``, nothing is downloaded: the keys of the public Sigstore are those of the last online use, or else
    those that the library contains. Raises :class:`ConfigError` (``extra-missing``, ``sigstore-failed``).
    """
    try:
        from sigstore.models import ClientTrustConfig
    except ImportError:
        hint = "run: pip install 'securebench[sigstore]' (in a clone: pip install '.[sigstore]')"
        message = "Sigstore needs the package 'sigstore', which is not installed"
        raise ConfigError(message, code="extra-missing", hint=hint) from None
    file = os.environ.get(TRUST_VARIABLE)
    try:
        if file:
            return ClientTrustConfig.from_json(Path(file).read_text(encoding="utf-8"))
        return ClientTrustConfig.production(offline=offline)
    except Exception as error:  # reading, parsing and downloading raise various errors
        hint = f"check the network, and the file that {TRUST_VARIABLE} names, if it is set"
        raise _failed(
            f"cannot load the trust configuration of {file or 'the public Sigstore'}: {error}", hint
        ) from error


def _token() -> Any:
    """Return an identity token of this CI job. It is valid for minutes, so each use requests a new one."""
    trust_config()  # raises an error if the library is not installed
    from sigstore.oidc import IdentityError, IdentityToken, detect_credential

    try:
        raw = detect_credential()
        if raw is not None:
            return IdentityToken(raw)
    except IdentityError as error:
        raise _failed(f"this job has no identity that Sigstore accepts: {error}") from error
    raise _failed("there is no identity: SecureBench is not running in a job of a CI service that Sigstore supports")


def _failed(problem: str, hint: str = "") -> ConfigError:
    hint = hint or "in GitHub Actions, give the job 'permissions: id-token: write'; elsewhere, sign with '--sign KEY'"
    return ConfigError(problem, code="sigstore-failed", hint=hint)
