"""Why a relay refuses a request."""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import Final


class RelayRefusal(StrEnum):
    """The reasons for refusing a request, as written to reports and logs."""

    MALFORMED = "malformed"
    """Not valid HTTP/1.1, ambiguous framing, or a body that did not arrive in time."""
    PATH = "path"
    """The path or its query is not allowed."""
    METHOD = "method"
    """The path requires another method."""
    UPGRADE = "upgrade"
    """An upgrade to another protocol, such as WebSocket."""
    HEADER = "header"
    """A header says that the body is compressed or is not JSON, or a header requests a refused beta feature."""
    TOO_LARGE = "too_large"
    """The body is too large or contains too many values, or all bodies in progress together are too large."""
    JSON = "json"
    """The body is not a strict JSON object."""
    FIELD = "field"
    """A parameter or its value is not allowed."""
    MODEL = "model"
    """The model is not the configured one."""
    TOOL = "tool"
    """The provider would run the tool, or the tool is unknown."""
    CONTENT = "content"
    """The provider would fetch the content, or its type is not allowed."""
    BUDGET = "budget"
    """The task's budget is used up."""


REFUSAL_HEADER: Final = "x-securebench-refusal"
"""The header with the reason of a refusal. Providers cannot send it, because the relay removes unknown headers."""

STATUS: Final = MappingProxyType(
    {
        RelayRefusal.PATH: 404,
        RelayRefusal.METHOD: 405,
        RelayRefusal.UPGRADE: 426,
        RelayRefusal.TOO_LARGE: 413,
        RelayRefusal.BUDGET: 429,
    }
)
"""The HTTP status sent to the agent for these reasons.

For all other reasons, the status is 400, because agents retry 403 and 5xx but not 400.
"""


class RefusedError(Exception):
    """A request is refused. ``message`` is sent to the agent and contains no secrets."""

    def __init__(self, reason: RelayRefusal, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message

    @property
    def status(self) -> int:
        """The HTTP status sent to the agent."""
        return STATUS.get(self.reason, 400)
