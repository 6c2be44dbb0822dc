"""How a run and its gateway speak: one packet a frame, a JSON object and at most one descriptor.

The run sends ``start``, then ``open``, ``listen`` (with a listening socket) and ``close`` for each session, and
``probe`` for a question to a provider; the process answers ``ready``, ``opened`` or ``failed``, ``closed`` or
``probed`` with a report, and sends ``log`` in between. Keys go one way only, inside ``open`` and ``probe``. Both sides
import this, so it needs nothing but the standard library.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_FRAME: Final = 128 * 1024
"""Bytes of the largest packet: more than a plan or a report needs, less than a socket's buffer holds by default."""

_INT: Final = struct.Struct("i")
_DESCRIPTORS: Final = 4
_CUT_SHORT: Final = socket.MSG_TRUNC | socket.MSG_CTRUNC


class FrameError(ValueError):
    """A frame is too large to be sent, or what came is none. Its text holds nothing of the frame."""


def pack(frame: Mapping[str, Any]) -> bytes:
    """Return ``frame`` as a packet. Raises :class:`FrameError`."""
    packet = json.dumps(frame, separators=(",", ":")).encode("ascii")
    if len(packet) > MAX_FRAME:
        raise FrameError(f"a frame of {len(packet)} bytes is too large: {MAX_FRAME} may be sent")
    return packet


def send(control: socket.socket, packet: bytes, descriptor: int = -1) -> None:
    """Send a packet, with ``descriptor`` if there is one. Raises ``OSError`` when nobody receives."""
    held = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, _INT.pack(descriptor))] if descriptor >= 0 else []
    control.sendmsg([packet], held, socket.MSG_NOSIGNAL)


def receive(control: socket.socket) -> tuple[dict[str, Any], int] | None:
    """Return the next frame and its descriptor, or -1; ``None`` at the end. Raises ``OSError``, :class:`FrameError`."""
    room = socket.CMSG_LEN(_DESCRIPTORS * _INT.size)
    packet, extra, flags, _ = control.recvmsg(MAX_FRAME, room, socket.MSG_CMSG_CLOEXEC)
    descriptors = [number for _, _, data in extra for (number,) in _INT.iter_unpack(data)]
    if not packet:
        return None
    try:
        return _read(packet, flags), descriptors.pop(0) if descriptors else -1
    finally:
        for superfluous in descriptors:
            os.close(superfluous)


def _read(packet: bytes, flags: int) -> dict[str, Any]:
    if flags & _CUT_SHORT:
        raise FrameError("a frame was cut short")
    try:
        frame = json.loads(packet)
    except (ValueError, RecursionError):
        frame = None
    if not isinstance(frame, dict):
        raise FrameError("a frame is not a JSON object")
    return frame
