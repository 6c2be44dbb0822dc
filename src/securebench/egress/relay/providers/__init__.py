"""The providers' APIs: what agents may use of them, and how to read their answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from securebench.egress.model import Provider
from securebench.egress.relay.providers.anthropic import Anthropic
from securebench.egress.relay.providers.chat_completions import ChatCompletions
from securebench.egress.relay.providers.gemini import Gemini
from securebench.egress.relay.providers.openai import OpenAI

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.egress.relay.providers.base import Dialect

__all__ = ["dialect_of"]


_DIALECTS: Final[Mapping[Provider, Dialect]] = {
    Provider.OPENAI: OpenAI(),
    Provider.ANTHROPIC: Anthropic(),
    Provider.CHAT_COMPLETIONS: ChatCompletions(),
    Provider.GEMINI: Gemini(),
}


def dialect_of(provider: Provider) -> Dialect:
    """Return the dialect of ``provider``."""
    return _DIALECTS[provider]
