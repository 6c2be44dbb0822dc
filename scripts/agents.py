"""Install the agent programs that tests run, in their pinned versions, into the user's cache.

    python -m scripts.agents    install missing programs; if they are not available, print why

A program is not available if its registry cannot be reached or the machine is not supported. Any other problem is an
error.
"""

from __future__ import annotations

import sys
from typing import Final

from scripts.engine import say

NAMES: Final = ("codex", "claude_code")
REASONS: Final = frozenset({"agent-unavailable", "agent-unfit"})


def missing() -> str:
    """Install the programs. Return why they are not available, or an empty text. Raises ``SecureBenchError``."""
    from securebench.agents.progress import lines
    from securebench.agents.store import AgentStore
    from securebench.errors import SecureBenchError

    try:
        with AgentStore() as cache:
            for name in NAMES:
                cache.install(name, on_progress=lines(say))
    except SecureBenchError as error:
        if error.code not in REASONS:
            raise
        return " ".join(error.message.split())
    return ""


def main() -> int:
    """Install the programs, print why they are not available, and return the exit code."""
    from securebench.errors import SecureBenchError

    try:
        print(missing())
    except SecureBenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
