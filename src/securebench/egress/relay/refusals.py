"""Why a relay does not pass a request on."""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import Final


class RelayRefusal(StrEnum):
    """The reasons, as they stand in reports and in logs."""

    MALFORMED = "malformed"
    """It is no HTTP/1.1, or its framing can be read in two ways."""
    PATH = "path"
    """Not one of the provider's paths that an agent needs, with their known queries."""
    METHOD = "method"
    """The path takes another method."""
    UPGRADE = "upgrade"
    """Another protocol over the same connection, as a WebSocket is."""
    HEADER = "header"
    """A header says what the relay cannot check: a compressed body, another type, a beta of provider-side tools."""
    TOO_LARGE = "too_large"
    """The body is larger than a relay holds, or holds too many values."""
    JSON = "json"
    """The body is not the strict JSON of one object."""
    FIELD = "field"
    """A parameter that is not admitted, or not with this value."""
    MODEL = "model"
    """Another model than the configured one."""
    TOOL = "tool"
    """A tool that the provider would run."""
    CONTENT = "content"
    """Content that the provider would fetch, or that is not known to be inert."""
    BUDGET = "budget"
    """The task's budget is used up."""


STATUS: Final = MappingProxyType(
    {
        RelayRefusal.PATH: 404,
        RelayRefusal.METHOD: 405,
        RelayRefusal.UPGRADE: 426,
        RelayRefusal.TOO_LARGE: 413,
        RelayRefusal.BUDGET: 429,
    }
)
"""What the agent is answered, 400 otherwise: programs give up at 400 at once, and repeat at 403 and at 5xx."""


class RefusedError(Exception):
    """A request is not passed on. ``message`` is for the agent, and holds nothing that it may not know."""

    def __init__(self, reason: RelayRefusal, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message

    @property
    def status(self) -> int:
        """What the agent is answered."""
        return STATUS.get(self.reason, 400)
