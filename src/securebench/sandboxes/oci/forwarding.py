"""The doors of a container, from the keeper, which opens them, to those who serve."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from securebench.sandboxes.forwarding import serve_doors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from securebench.sandboxes.forwarding import ForwardedPort
    from securebench.sandboxes.oci.request import ProcessRequest

_SECONDS: Final = 60.0
"""How long the keeper gets to open them."""


def open_doors(job: ProcessRequest, doors: Sequence[ForwardedPort]) -> None:
    """Take the listening sockets of ``doors`` from ``job``, which is about to start, and give each to who serves it.

    There are none if the container could not be made: its report says why. Raises :class:`InfrastructureError`, and
    what serving raises; then the container is ended.
    """
    try:
        if listeners := job.listeners(_SECONDS):
            serve_doors(doors, listeners)
    except BaseException:
        job.kill()
        job.hang_up()
        raise
