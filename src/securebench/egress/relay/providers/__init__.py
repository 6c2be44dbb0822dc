"""The providers' APIs: what agents may use of them, and how to read their answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from securebench.egress.model import Provider
from securebench.egress.relay.providers.anthropic import Anthropic
from securebench.egress.relay.providers.openai import OpenAI

if TYPE_CHECKING:
    from securebench.egress.relay.providers.base import Dialect

__all__ = ["dialect_of"]


def dialect_of(provider: Provider) -> Dialect:
    """Return the dialect of ``provider``."""
    return Anthropic() if provider is Provider.ANTHROPIC else OpenAI()
