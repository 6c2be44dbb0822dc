"""What goes back to a client: one HTTP answer, in pieces."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_TEXT_PIECE: Final = 32
"""How many characters of a text or of a call's arguments one event carries."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer. One of several ``pieces`` is sent in chunks."""

    status: int
    pieces: tuple[bytes, ...]
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def streams(self) -> bool:
        """Whether its length is not said beforehand."""
        return self.content_type == "text/event-stream"


def whole(status: int, value: object, headers: Mapping[str, str] | None = None) -> Reply:
    """Return an answer of one JSON value."""
    return Reply(status, (json.dumps(value).encode(),), headers=headers or {})


def stream(events: Iterable[Mapping[str, Any]]) -> Reply:
    """Return an answer of server-sent events. Each has its name in ``type``."""
    pieces = (f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events)
    return Reply(200, tuple(pieces), content_type="text/event-stream", headers={"cache-control": "no-cache"})


def parts(text: str) -> list[str]:
    """Return ``text`` cut as a model's words come."""
    return [text[start : start + _TEXT_PIECE] for start in range(0, len(text), _TEXT_PIECE)] or [""]


def new_id(prefix: str) -> str:
    """Return an id that no other answer has."""
    return prefix + secrets.token_hex(12)
