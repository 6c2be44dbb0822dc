"""What a sandbox may use: set by the tester, enforced by every driver."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a sandbox may use. Sizes in bytes; ``cpus`` in cores."""

    memory: int = 1024 * MIB
    pids: int = 256
    cpus: float = 1.0
    tmpfs: int = 256 * MIB
    open_files: int = 1024
    file_size: int = 1024 * MIB
    output: int = 64 * MIB
    """What one command may write to stdout and stderr together before its sandbox is ended."""
