"""How a driver and its keeper speak. Both sides import this, so it needs nothing but the standard library.

* Over one stream socket the driver sends *requests*: four bytes of length, a JSON object, a NUL byte, a document that
  the keeper writes down unread; and descriptors. The keeper sends one such frame back when it is ready: its *hello*.
* Every job (a container, or a command in one) has a packet socket of its own. The keeper sends *reports* over it, JSON
  objects, with a descriptor of what a container changed where that is collected, and closes it when nothing of the job
  is left. The driver sends :data:`KILL` over it; closing it kills too. With :data:`LIMIT` it sends the seconds that the
  job has from then on.
"""

from __future__ import annotations

import json
import socket
import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

KILL = b"kill"
LIMIT = b"limit "

REPORT_BYTES = 16 * 1024
"""The most that a report holds: what a runtime said of its failure is cut to fit."""

_LENGTH = struct.Struct("!I")
_INT = struct.Struct("i")
_DESCRIPTORS = 8


def send_frame(
    connection: socket.socket, header: Mapping[str, Any], document: bytes = b"", descriptors: Sequence[int] = ()
) -> None:
    """Send a frame. Raises ``OSError`` when nobody receives."""
    payload = json.dumps(header).encode() + b"\0" + document
    socket.send_fds(connection, [_LENGTH.pack(len(payload))], list(descriptors))
    connection.sendall(payload)


def receive_frame(connection: socket.socket) -> tuple[dict[str, Any], bytes, list[int]] | None:
    """Return the next frame: header, document, descriptors; or ``None`` at the end."""
    # Descriptors that are not closed on exec would be inherited by every runtime that starts; socket.recv_fds has no
    # way to ask for that, as it ignores the flags that it is given.
    room = socket.CMSG_LEN(_DESCRIPTORS * _INT.size)
    length, extra, _, _ = connection.recvmsg(_LENGTH.size, room, socket.MSG_CMSG_CLOEXEC)
    descriptors = [number for _, _, data in extra for (number,) in _INT.iter_unpack(data)]
    if len(length) < _LENGTH.size:
        return None
    payload = bytearray()
    left = _LENGTH.unpack(length)[0]
    while left and (piece := connection.recv(left)):
        payload += piece
        left -= len(piece)
    header, _, document = bytes(payload).partition(b"\0")
    return (json.loads(header), document, descriptors) if not left else None


def send_report(channel: socket.socket, report: Mapping[str, Any], descriptor: int = -1) -> None:
    """Send a report as one packet, with a descriptor if there is one. Raises ``OSError`` when nobody receives."""
    held = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, _INT.pack(descriptor))] if descriptor >= 0 else []
    channel.sendmsg([json.dumps(report).encode()], held, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)


def receive_report(channel: socket.socket) -> tuple[dict[str, Any], int] | None:
    """Return the next report, with the descriptor that came with it, or -1; or ``None`` at the end.

    Raises ``OSError``, as when there is nothing yet.
    """
    room = socket.CMSG_LEN(_INT.size)
    packet, extra, _, _ = channel.recvmsg(REPORT_BYTES, room, socket.MSG_CMSG_CLOEXEC)
    descriptors = [number for _, _, data in extra for (number,) in _INT.iter_unpack(data)]
    return (json.loads(packet), descriptors[0] if descriptors else -1) if packet else None
