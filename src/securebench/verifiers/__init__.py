"""Verifiers: judge a sealed candidate and return a verdict."""

from typing import TYPE_CHECKING

from securebench.lazy_names import lazy_names

if TYPE_CHECKING:
    from securebench.verifiers.base import VerificationResult, Verifier, VerifyContext
    from securebench.verifiers.registry import verifier_for

__all__ = [
    "VerificationResult",
    "Verifier",
    "VerifyContext",
    "verifier_for",
]

__getattr__ = lazy_names(
    __name__,
    {
        "VerificationResult": "base",
        "Verifier": "base",
        "VerifyContext": "base",
        "verifier_for": "registry",
    },
)
