"""Forwarded ports: serve something outside a sandbox into it, without a network between the two."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from securebench.errors import ConfigError, EgressError

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence

    from securebench.sandboxes.base import SandboxSpec

MAX_FORWARDED_PORTS: Final = 4
"""How many forwarded ports a sandbox may have."""

_PORTS: Final = range(1, 1 << 16)


@dataclass(frozen=True, slots=True)
class ForwardedPort:
    """A TCP port of a sandbox's own loopback, 127.0.0.1, on which somebody outside of it listens.

    The network namespace of the sandbox still holds loopback and nothing else: what comes to this port reaches whoever
    has the listening socket, and nobody else can be reached.

    The socket listens before the first process of the image runs. ``serve`` is given it, once for each command that has
    a container of its own, and once for a persistent sandbox, before that command, or sandbox, is returned. It owns the
    socket from then on, and returns at once. Connections end with the sandbox; the socket does not, it only hears
    nothing more: whoever serves closes it.
    """

    port: int
    serve: Callable[[socket.socket], None]


def check_forwarded_ports(spec: SandboxSpec, runtime: str = "", *, possible: bool = True) -> None:
    """Raise :class:`ConfigError` (``sandbox-unsupported``) unless a sandbox can have the forwarded ports of ``spec``.

    Where ``runtime`` makes none ``possible`` it is :class:`EgressError` (``egress-unavailable``).
    """
    ports = [forwarded_port.port for forwarded_port in spec.forwarded_ports]
    if ports and spec.network != "none":
        raise _unsupported(f"forwarded ports beside the network {spec.network!r}")
    if len(ports) > MAX_FORWARDED_PORTS or len(set(ports)) < len(ports) or any(port not in _PORTS for port in ports):
        raise _unsupported(f"forwarded ports at the ports {ports}")
    if ports and not possible:
        raise no_forwarded_ports(f"with {runtime} nothing outside of a sandbox can be reached from it")


def no_forwarded_ports(why: str) -> EgressError:
    """Return the error that says that sandboxes can have no forwarded ports here."""
    return EgressError(
        f"agents cannot be given a way to a provider here: {why}",
        code="egress-unavailable",
        hint="install crun and leave sandbox.runtime out, or use the docker driver with its default runtime",
    )


def serve_forwarded_ports(forwarded_ports: Sequence[ForwardedPort], listeners: Sequence[socket.socket]) -> None:
    """Give each listener to its forwarded port. Whatever one raises is passed on, and then all are closed."""
    try:
        for forwarded_port, listener in zip(forwarded_ports, listeners, strict=True):
            forwarded_port.serve(listener)
    except BaseException:
        for listener in listeners:
            listener.close()
        raise


def _unsupported(what: str) -> ConfigError:
    return ConfigError(
        f"{what} are not supported",
        code="sandbox-unsupported",
        hint=f"a sandbox without a network may have {MAX_FORWARDED_PORTS} forwarded ports, each at a port of its own",
    )
