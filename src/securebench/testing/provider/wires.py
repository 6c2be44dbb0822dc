"""Determine which API a request uses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from securebench.testing.provider import anthropic_wire, chat_wire, gemini_wire, openai_wire

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from securebench.testing.provider.conversation import ModelConversation
    from securebench.testing.provider.reply import Reply
    from securebench.testing.provider.steps import ModelAnswer


@dataclass(frozen=True, slots=True)
class ApiWire:
    """One API: how to read a request's body, and how to write an answer, an error and the list of models.

    ``error_event`` aborts a streamed answer. ``read`` accepts any body.
    """

    read: Callable[[Mapping[str, Any]], ModelConversation]
    render: Callable[[ModelAnswer, ModelConversation], Reply]
    error: Callable[[int, str], dict[str, Any]]
    error_event: Callable[[int, str], dict[str, Any]]
    models: Callable[[list[str]], dict[str, Any]]


OPENAI: Final = ApiWire(
    openai_wire.read, openai_wire.render, openai_wire.error, openai_wire.error_event, openai_wire.models
)
ANTHROPIC: Final = ApiWire(
    anthropic_wire.read,
    anthropic_wire.render,
    anthropic_wire.error,
    anthropic_wire.error_event,
    anthropic_wire.models,
)
CHAT_COMPLETIONS: Final = ApiWire(
    chat_wire.read, chat_wire.render, chat_wire.error, chat_wire.error_event, chat_wire.models
)
GEMINI: Final = ApiWire(
    gemini_wire.read, gemini_wire.render, gemini_wire.error, gemini_wire.error_event, gemini_wire.models
)
_CHAT_PATH: Final = "/chat/completions"
_GEMINI_VERSION: Final = "/v1beta/"
_KEY_HEADERS: Final = ("x-api-key", "x-goog-api-key", "api-key")


def wire_of(path: str, headers: Mapping[str, str]) -> ApiWire:
    """Return the API that a request's path or headers show, by default OpenAI's.

    Names of ``headers`` are in lower case.
    """
    if path.partition("?")[0].rstrip("/").endswith(_CHAT_PATH):
        return CHAT_COMPLETIONS
    if path.startswith(_GEMINI_VERSION) or "x-goog-api-key" in headers:
        return GEMINI
    is_anthropic = "/messages" in path or "anthropic-version" in headers or "x-api-key" in headers
    return ANTHROPIC if is_anthropic else OPENAI


def key_of(headers: Mapping[str, str]) -> str:
    """Return the client's API key, or an empty string."""
    bearer = headers.get("authorization", "")
    own = next((key for name in _KEY_HEADERS if (key := headers.get(name))), "")
    return own or bearer.removeprefix("Bearer ").strip()
