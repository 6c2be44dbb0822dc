"""Limits that the tester sets: resource limits, which the driver enforces, and time limits for a provider."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1024 * 1024
GIB = 1024 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The resource limits of a sandbox. Sizes are in bytes, ``cpus`` in cores."""

    memory: int = 1024 * MIB
    pids: int = 256
    cpus: float = 1.0
    tmpfs: int = 256 * MIB
    open_files: int = 1024
    file_size: int = 1024 * MIB
    workspace: int = 1024 * MIB
    """Maximum bytes of all files in a workspace.

    The number of files is limited, too: to one per 4 KiB of this size, or to 1,024 if that is more.
    """
    output: int = 64 * MIB
    """Bytes that one command may write to stdout and stderr together before its sandbox is stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderTimeouts:
    """Time limits for a model's provider, in seconds: the tester's settings ``provider_timeouts`` and ``timeouts``.

    ``first_byte`` and ``between_bytes`` limit the waiting times of a streamed answer. An answer that is not streamed is
    sent only when all of it has been generated, so only ``connect`` and ``whole_answer`` limit it.
    """

    connect: float = 30.0
    """Time limit for name resolution, connection and TLS handshake together."""
    first_byte: float = 600.0
    """Time limit until a streamed answer begins. A local server may read a long prompt for minutes."""
    between_bytes: float = 300.0
    """Time limit between two pieces of a streamed answer."""
    whole_answer: float = 3600.0
    """Time limit from a request to the end of its answer, streamed or not."""
