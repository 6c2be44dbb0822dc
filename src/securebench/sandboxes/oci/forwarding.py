"""The forwarded ports of a container, from the supervisor, which opens them, to those who serve."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from securebench.sandboxes.forwarding import serve_forwarded_ports

if TYPE_CHECKING:
    from collections.abc import Sequence

    from securebench.sandboxes.forwarding import ForwardedPort
    from securebench.sandboxes.oci.handle import ProcessHandle

_SECONDS: Final = 60.0
"""How long the supervisor gets to open them."""


def open_forwarded_ports(handle: ProcessHandle, forwarded_ports: Sequence[ForwardedPort]) -> None:
    """Receive the listening sockets from ``handle``, which is about to start, and give each to its server.

    There are none if the container could not be made: its report says why. Raises :class:`InfrastructureError`, and
    what serving raises; then the container is ended.
    """
    try:
        if listeners := handle.listeners(_SECONDS):
            serve_forwarded_ports(forwarded_ports, listeners)
    except BaseException:
        handle.kill()
        handle.hang_up()
        raise
