"""How a driver and its supervisor speak. Both sides import this, so it needs nothing but the standard library.

* Over one stream socket the driver sends *requests*: four bytes of length, a JSON object, a NUL byte, a document that
  the supervisor writes down unread; and descriptors. The supervisor sends one such frame back when it is ready: its
  *hello*.
* Every process (a container, or a command in one) has a packet socket of its own. The supervisor sends *reports* over
  it, as JSON objects, and closes it when nothing of the process is left. A container with forwarded ports reports
  their listening sockets before its runtime starts (:data:`FORWARDED_PORTS`). The last report brings a descriptor of
  what the container changed, if that is collected. The driver sends :data:`KILL` over the socket; closing it kills
  too. With :data:`LIMIT` it sends how many seconds the process may still run.
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

FORWARDED_PORTS = "forwarded_ports"
"""The key of a report with listening sockets. Its value is their number."""

REPORT_BYTES = 16 * 1024
"""The most that a report holds: what a runtime said of its failure is cut to fit."""

_LENGTH = struct.Struct("!I")
_INT = struct.Struct("i")
_DESCRIPTORS = 8
"""The most that go with one frame, or one report."""


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


def send_report(channel: socket.socket, report: Mapping[str, Any], *descriptors: int) -> None:
    """Send a report as one packet, with descriptors if there are any. Raises ``OSError`` when nobody receives."""
    held = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack(f"{len(descriptors)}i", *descriptors))]
    packet = [json.dumps(report).encode()]
    channel.sendmsg(packet, held if descriptors else [], socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)


def receive_report(channel: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Return the next report, with the descriptors that came with it; or ``None`` at the end.

    Raises ``OSError``, as when there is nothing yet. Descriptors for which this process has no room are not there.
    """
    room = socket.CMSG_LEN(_DESCRIPTORS * _INT.size)
    packet, extra, _, _ = channel.recvmsg(REPORT_BYTES, room, socket.MSG_CMSG_CLOEXEC)
    descriptors = [number for _, _, data in extra for (number,) in _INT.iter_unpack(data)]
    return (json.loads(packet), descriptors) if packet else None
