"""Frames: a JSON object and a few file descriptors, sent as one packet between two processes of this machine.

A channel is a Unix socket of type ``SOCK_SEQPACKET``. The kernel keeps the boundaries of its packets, so a frame
arrives whole or not at all. After the peer has exited, reading reports the end of the channel.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

MAX_FRAME: Final = 128 * 1024
"""Maximum bytes of a packet: less than a socket's buffer holds by default (``net.core.wmem_default``, 208 KiB)."""

_INT: Final = struct.Struct("i")
_CUT_SHORT: Final = socket.MSG_TRUNC | socket.MSG_CTRUNC


class FrameError(ValueError):
    """A frame is too large to send, a received frame is invalid, or an expected frame is missing.

    The message never quotes the frame.
    """


class Frame(NamedTuple):
    """A received frame.

    Its descriptors belong to the receiver. Programs that the receiver starts do not inherit them.
    """

    body: dict[str, Any]
    descriptors: list[int]


def channel_pair() -> tuple[socket.socket, socket.socket]:
    """Return the two ends of a new channel. Raises ``OSError``."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def pack(body: Mapping[str, Any]) -> bytes:
    """Return ``body`` as a packet. Raises :class:`FrameError` if it is too large."""
    packet = json.dumps(body, separators=(",", ":")).encode("ascii")
    if len(packet) > MAX_FRAME:
        raise FrameError(f"a frame of {len(packet)} bytes is too large: the limit is {MAX_FRAME}")
    return packet


def send(channel: socket.socket, packet: bytes, descriptors: Sequence[int] = ()) -> None:
    """Send a packet, and copies of ``descriptors`` with it. Raises ``OSError`` when the peer is gone."""
    rights = struct.pack(f"{len(descriptors)}i", *descriptors)
    # An empty list of descriptors may not be sent.
    extra = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)] if rights else []
    channel.sendmsg([packet], extra, socket.MSG_NOSIGNAL)


def receive(channel: socket.socket, descriptors: int = 0, *, may_lose_descriptors: bool = False) -> Frame | None:
    """Return the next frame, with at most ``descriptors`` descriptors, or ``None`` at the end of the channel.

    Raises ``OSError``, and :class:`FrameError` for an invalid frame. A frame loses descriptors if it has too many, or
    if this process may not open more files. Such a frame is invalid. With ``may_lose_descriptors``, it is returned
    instead, without any descriptor.
    """
    # The kernel drops descriptors for which there is no room here. Without MSG_CMSG_CLOEXEC, which socket.recv_fds()
    # cannot set, a program that another thread starts in this moment would inherit them.
    room = socket.CMSG_LEN(descriptors * _INT.size)
    try:
        packet, extra, flags, _ = channel.recvmsg(MAX_FRAME, room, socket.MSG_CMSG_CLOEXEC)
    except ConnectionResetError:
        # The peer closed its end before it had read everything. Linux reports that once, and ahead of the frames that
        # the peer sent before. If this were taken as the end, the last report of a process would be lost.
        packet, extra, flags, _ = channel.recvmsg(MAX_FRAME, room, socket.MSG_CMSG_CLOEXEC)
    received = [number for _, _, data in extra for (number,) in _INT.iter_unpack(data)]
    if not packet or flags & socket.MSG_CTRUNC:
        close_all(received)
        received = []
    if not packet:
        return None
    try:
        return Frame(_body(packet, flags & (socket.MSG_TRUNC if may_lose_descriptors else _CUT_SHORT)), received)
    except FrameError:
        close_all(received)
        raise


def inherited_channel(descriptor: int, descriptors: int = 0) -> tuple[socket.socket, Frame]:
    """Return the channel between this child process and its parent, and the first frame with the child's settings.

    Raises the errors of :func:`receive`, and :class:`FrameError` if the parent is gone.
    """
    os.set_inheritable(descriptor, False)
    channel = socket.socket(fileno=descriptor)
    settings = receive(channel, descriptors)
    if settings is None:
        channel.close()
        raise FrameError("the parent process is gone")
    return channel, settings


def close_all(descriptors: Iterable[int]) -> None:
    """Close all ``descriptors``."""
    for descriptor in descriptors:
        os.close(descriptor)


def _body(packet: bytes, cut_short: int) -> dict[str, Any]:
    if cut_short:
        raise FrameError("a frame was truncated or lost its file descriptors")
    try:
        body = json.loads(packet)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise FrameError("a frame is not a JSON object")
    return body
