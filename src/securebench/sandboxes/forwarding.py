"""Forwarded ports: connect a sandbox to a service outside of it, without a network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from securebench.errors import ConfigError, EgressError

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence

    from securebench.sandboxes.base import SandboxSpec

MAX_FORWARDED_PORTS: Final = 4
"""The most forwarded ports of one sandbox."""

_PORTS: Final = range(1, 1 << 16)


@dataclass(frozen=True, slots=True)
class ForwardedPort:
    """A TCP port on the loopback interface of a sandbox, 127.0.0.1, that is served from outside.

    The network namespace of the sandbox contains only loopback. Connections to this port reach the owner of the
    listening socket and nothing else.

    The socket listens before the first process of the image starts. ``serve`` receives it once for each ephemeral
    command and once for a persistent sandbox, before that command or sandbox is returned. It then owns the socket, must
    return at once, and has to close the socket. Connections end with the sandbox. The socket stays open but gets no
    more connections.
    """

    port: int
    serve: Callable[[socket.socket], None]


def check_forwarded_ports(spec: SandboxSpec, runtime: str = "", *, possible: bool = True) -> None:
    """Raise :class:`ConfigError` (``sandbox-unsupported``) unless a sandbox can have the forwarded ports of ``spec``.

    Raises :class:`EgressError` (``egress-unavailable``) if they are not ``possible`` with ``runtime``.
    """
    ports = [forwarded_port.port for forwarded_port in spec.forwarded_ports]
    if ports and spec.network != "none":
        raise _unsupported(f"forwarded ports together with the network {spec.network!r}")
    if len(ports) > MAX_FORWARDED_PORTS or len(set(ports)) < len(ports) or any(port not in _PORTS for port in ports):
        raise _unsupported(f"the forwarded ports {ports}")
    if ports and not possible:
        raise no_forwarded_ports(f"{runtime} does not support forwarded ports")


def no_forwarded_ports(why: str) -> EgressError:
    """Return the error for a machine on which sandboxes cannot have forwarded ports."""
    return EgressError(
        f"agents cannot reach a model provider on this machine: {why}",
        code="egress-unavailable",
        hint="install crun and remove sandbox.runtime, or use the docker driver with its default runtime",
    )


def serve_forwarded_ports(forwarded_ports: Sequence[ForwardedPort], listeners: Sequence[socket.socket]) -> None:
    """Pass each listener to its forwarded port. If one raises an error, close all listeners and raise it again."""
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
        hint=f"a sandbox without a network can have up to {MAX_FORWARDED_PORTS} forwarded ports, each with a different "
        "number from 1 to 65535",
    )
