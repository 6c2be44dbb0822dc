"""Doors: how something outside a sandbox is served into it, without any network between the two."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from securebench.errors import ConfigError, EgressError

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence

    from securebench.sandboxes.base import SandboxSpec

MOST_DOORS: Final = 4
"""How many doors a sandbox may have."""

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


def check_doors(spec: SandboxSpec, runtime: str = "", *, possible: bool = True) -> None:
    """Raise :class:`ConfigError` (``sandbox-unsupported``) unless a sandbox can have the doors of ``spec``.

    Where ``runtime`` makes none ``possible`` it is :class:`EgressError` (``egress-unavailable``).
    """
    ports = [door.port for door in spec.doors]
    if ports and spec.network != "none":
        raise _unsupported(f"doors beside the network {spec.network!r}")
    if len(ports) > MOST_DOORS or len(set(ports)) < len(ports) or any(port not in _PORTS for port in ports):
        raise _unsupported(f"doors at the ports {ports}")
    if ports and not possible:
        raise no_doors(f"with {runtime} nothing outside of a sandbox can be reached from it")


def no_doors(why: str) -> EgressError:
    """Return the error that says that sandboxes can have no doors here."""
    return EgressError(
        f"agents cannot be given a way to a provider here: {why}",
        code="egress-unavailable",
        hint="install crun and leave sandbox.runtime out, or use the docker driver with its default runtime",
    )


def serve_doors(doors: Sequence[ForwardedPort], listeners: Sequence[socket.socket]) -> None:
    """Give each listener to its door. Whatever one raises is passed on, and then all are closed."""
    try:
        for door, listener in zip(doors, listeners, strict=True):
            door.serve(listener)
    except BaseException:
        for listener in listeners:
            listener.close()
        raise


def _unsupported(what: str) -> ConfigError:
    return ConfigError(
        f"{what} are not supported",
        code="sandbox-unsupported",
        hint=f"a sandbox without a network may have {MOST_DOORS} doors, each at a port of its own",
    )
