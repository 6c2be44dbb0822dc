"""Check who signed a run or a suite, and that the signature belongs to it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from securebench.errors import ConfigError
from securebench.results.attestation import signature_files

if TYPE_CHECKING:
    from securebench.audit.run.report import RunCheck
    from securebench.audit.run.verify import Evidence
    from securebench.results.attestation import Attestation


def check_signatures(check: RunCheck, attestation: Attestation, evidence: Evidence) -> str:
    """Check that the key and the identity in ``evidence``, where given, signed these results.

    If ``evidence`` has no key, a signature by a key is not verified. Only its statement is compared with the results.
    If ``evidence`` has no identity, a Sigstore bundle is not checked.

    Return the signer, or an empty string if the signature was not verified. Raises :class:`ConfigError` if this machine
    cannot check the signature: ``extra-missing``, ``sigstore-failed``.
    """
    key, identity, what = evidence.public_key, evidence.identity, attestation.kind
    envelope, bundle = (attestation.directory / file for file in signature_files(what))
    signer, unchecked = "", list[str]()
    try:
        if key or os.path.lexists(envelope):
            key_id = attestation.check(key)
            if key:
                signer = f"key {key.fingerprint}"
            else:
                unchecked.append(f"the signature names the key {key_id} (use --key to check who signed the {what})")
        if identity:
            attestation.check_sigstore(identity)
            signer = identity.identity
        elif os.path.lexists(bundle):
            unchecked.append(f"the {what} has a Sigstore bundle (use --identity and --issuer to check it)")
    except ConfigError as error:
        if error.code in {"extra-missing", "sigstore-failed"}:
            raise
        place, top = error.problems[0].location, f"{attestation.directory}/"
        check.add(error.message.replace(top, ""), place.file.removeprefix(top) if place else "")
        return ""
    if signer:
        check.text = f"the {what} is signed by {signer}"
    else:
        check.skipped = "; ".join(unchecked) or f"the {what} is not signed"
    return signer
