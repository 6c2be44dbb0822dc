"""Pass the forwarded ports of a container, which the supervisor opens, to their servers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from securebench.sandboxes.forwarding import serve_forwarded_ports

if TYPE_CHECKING:
    from collections.abc import Sequence

    from securebench.sandboxes.forwarding import ForwardedPort
    from securebench.sandboxes.oci.handle import ProcessHandle

_SECONDS: Final = 60.0
"""How long the supervisor may take to open them."""


def open_forwarded_ports(handle: ProcessHandle, forwarded_ports: Sequence[ForwardedPort]) -> None:
    """Receive the listening sockets of ``handle``, which is starting, and pass each to its server.

    If the container could not be created, there are none, and its report says why. Raises
    :class:`InfrastructureError` and the errors of serving, after killing the container.
    """
    try:
        if listeners := handle.listeners(_SECONDS):
            serve_forwarded_ports(forwarded_ports, listeners)
    except BaseException:
        handle.kill()
        handle.hang_up()
        raise
