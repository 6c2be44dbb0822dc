"""The description of an installed agent program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentProgram:
    """One version of an agent program for one platform, in the cache.

    ``name`` is ``codex`` or ``claude_code``, ``platform`` as in ``linux-x64`` or ``linux-x64-musl``, ``integrity`` what
    its archive was held to (``sha512-…``, base64). ``directory`` is to be mounted read-only; ``executable`` is a path
    below it.
    """

    name: str
    version: str
    platform: str
    integrity: str
    directory: Path
    executable: str
