"""Find the verifier of a family. Tasks of a family without a verifier get the status ``pending``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from securebench import plugins
from securebench.errors import ConfigError
from securebench.plugins import ExtensionKind

if TYPE_CHECKING:
    from securebench.tester_config import VerifierConfig
    from securebench.verifiers.base import Verifier


def verifier_for(family: str, config: VerifierConfig | None = None) -> Verifier | None:
    """Return a new verifier for ``family``: the one named in ``config``, or the one with the family's name.

    Returns ``None`` if the family has no verifier. Raises :class:`ConfigError`.
    """
    name = config.type if config else family
    if config is None and not plugins.is_known(ExtensionKind.VERIFIER, name):
        return None
    found: type[Verifier] = plugins.load(ExtensionKind.VERIFIER, name)
    verifier = found.from_settings(config.settings) if config else found()
    if verifier.family != family:
        raise ConfigError(
            f"the verifier {name!r} judges the family {verifier.family!r}, not {family!r}",
            code="verifier-unfit",
            hint=f"choose a verifier for {family!r} in verification.verifiers",
        )
    return verifier
