"""What the forwarded ports of a session are called between a run and its gateway."""

from __future__ import annotations

from typing import Final

PROXY: Final = "proxy"
RELAY: Final = "relay"
