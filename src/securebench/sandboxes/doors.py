"""Doors: how something outside a sandbox is served into it, without any network between the two."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Door:
    """A TCP port of a sandbox's own loopback, 127.0.0.1, on which somebody outside of it listens.

    The network namespace of the sandbox still holds loopback and nothing else: what comes to this port reaches whoever
    has the listening socket, and nobody else can be reached.

    ``serve`` is called once for each command that has a container of its own, and once for a persistent sandbox, before
    the first process of the image runs. It is given the listening socket, which it owns from then on, and returns at
    once. Whoever serves closes it when the sandbox has ended.
    """

    port: int
    serve: Callable[[socket.socket], None]
