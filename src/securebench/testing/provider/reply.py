"""The HTTP responses to a client, in pieces."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_TEXT_PIECE: Final = 32
"""The number of characters of text or arguments in one event."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A response. If it is an event stream, each of ``pieces`` is sent as a chunk."""

    status: int
    pieces: tuple[bytes, ...]
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def streams(self) -> bool:
        """Whether the response is an event stream, whose length is not known in advance."""
        return self.content_type == "text/event-stream"


def whole(status: int, value: object, headers: Mapping[str, str] | None = None) -> Reply:
    """Return a response with one JSON value."""
    return Reply(status, (json.dumps(value).encode(),), headers=headers or {})


def stream(events: Iterable[Mapping[str, Any]]) -> Reply:
    """Return a response of server-sent events. The ``type`` of an event, if it has one, is also its name."""
    pieces = (f"{_name(event)}data: {json.dumps(event)}\n\n".encode() for event in events)
    return Reply(200, tuple(pieces), content_type="text/event-stream", headers={"cache-control": "no-cache"})


def _name(event: Mapping[str, Any]) -> str:
    return f"event: {event['type']}\n" if "type" in event else ""


def parts(text: str) -> list[str]:
    """Split ``text`` into the pieces of a stream."""
    return [text[start : start + _TEXT_PIECE] for start in range(0, len(text), _TEXT_PIECE)] or [""]


def new_id(prefix: str) -> str:
    """Return a new random id."""
    return prefix + secrets.token_hex(12)
