"""The names of a session's forwarded ports in the protocol between a run and its gateway."""

from __future__ import annotations

from typing import Final

PROXY: Final = "proxy"
RELAY: Final = "relay"
