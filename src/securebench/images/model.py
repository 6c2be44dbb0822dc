"""The result of resolving an image reference."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class ResolvedImage:
    """An image reference, and the image that it was resolved to. A run resolves each reference once.

    ``id`` is the image's content address (``sha256:...``). Sandboxes are started from this id, and it is recorded.
    ``environment``, ``workdir`` and ``user`` are the image's own configuration: a driver applies none of it unless a
    :class:`~securebench.sandboxes.base.SandboxSpec` says so. ``volumes`` are the paths that the image declares as
    volumes. In a sandbox with a read-only root, a driver mounts an empty tmpfs of limited size at each of these paths
    that has no other mount.
    """

    reference: str
    id: str
    environment: Mapping[str, str] = field(default_factory=dict)
    workdir: str = "/"
    user: str = ""
    architecture: str = ""
    size_bytes: int = 0
    volumes: tuple[str, ...] = ()
