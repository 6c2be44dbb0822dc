"""Frames between two processes: what arrives, and what is refused."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import securebench
from securebench.ipc.frames import MAX_FRAME, FrameError, channel_pair, inherited_channel, pack, receive, send

if TYPE_CHECKING:
    from collections.abc import Iterator

Ends = tuple[socket.socket, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    """Return the two ends of a channel."""
    ours, theirs = channel_pair()
    with ours, theirs:
        yield ours, theirs


def open_descriptors() -> int:
    """Return how many descriptors this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_frame_arrives_with_its_descriptors(ends: Ends) -> None:
    """Descriptors arrive in order, and programs that the receiver starts do not inherit them."""
    sent = os.pipe()
    send(ends[0], pack({"n": "é\n"}), sent)
    frame = receive(ends[1], 2)
    assert frame
    assert frame.body == {"n": "é\n"}
    assert [os.fstat(one).st_ino for one in frame.descriptors] == [os.fstat(one).st_ino for one in sent]
    assert not any(map(os.get_inheritable, frame.descriptors))
    for descriptor in (*sent, *frame.descriptors):
        os.close(descriptor)


def test_frames_do_not_run_together(ends: Ends) -> None:
    """Two frames arrive separately, followed by the end of the channel."""
    send(ends[0], pack({"n": 1}))
    send(ends[0], pack({}))
    ends[0].close()
    assert receive(ends[1]) == ({"n": 1}, [])
    assert receive(ends[1]) == ({}, [])
    assert receive(ends[1]) is None


def test_a_last_frame_arrives_from_a_peer_that_left_frames_unread(ends: Ends) -> None:
    """If a peer closes with unread frames, Linux first reports a reset. The frames that the peer sent still arrive."""
    send(ends[0], pack({"kill": True}))
    send(ends[1], pack({"exit": 0}))
    ends[1].close()
    assert receive(ends[0]) == ({"exit": 0}, [])
    assert receive(ends[0]) is None


def test_the_largest_frame_fits_a_socket(ends: Ends) -> None:
    """A frame of the maximum size can be sent, and a frame that is one byte larger is refused."""
    room = MAX_FRAME - len(pack({"a": ""}))
    send(ends[0], pack({"a": "x" * room}))
    frame = receive(ends[1])
    assert frame
    assert len(frame.body["a"]) == room
    with pytest.raises(FrameError):
        pack({"a": "x" * (room + 1)})


@pytest.mark.parametrize("packet", [b"[]", b"{", b"\xff", b"1", b"[" * 50_000, b"x" * (MAX_FRAME + 1)])
def test_an_invalid_frame_is_an_error(ends: Ends, packet: bytes) -> None:
    """Packets that are too large or not a JSON object are refused, and their descriptors are closed."""
    before = open_descriptors()
    send(ends[0], packet, (0,))
    with pytest.raises(FrameError):
        receive(ends[1], 1)
    assert open_descriptors() == before


@pytest.mark.parametrize("accepted", [0, 1])
def test_unexpected_descriptors_are_an_error(ends: Ends, accepted: int) -> None:
    """A frame with too many descriptors is refused, and none of them stays open in the receiver."""
    before = open_descriptors()
    send(ends[0], pack({}), (0, 1, 2))
    with pytest.raises(FrameError, match="descriptors"):
        receive(ends[1], accepted)
    assert open_descriptors() == before


def test_a_frame_may_matter_more_than_its_descriptors(ends: Ends) -> None:
    """With ``may_lose_descriptors``, a frame with too many descriptors arrives without any."""
    before = open_descriptors()
    send(ends[0], pack({"exit": 1}), (0, 1))
    assert receive(ends[1], 1, may_lose_descriptors=True) == ({"exit": 1}, [])
    assert open_descriptors() == before


def test_a_child_without_a_parent_does_not_start(ends: Ends) -> None:
    """If the channel ends before the settings arrive, the child gets an error."""
    ends[0].close()
    with pytest.raises(FrameError, match="gone"):
        inherited_channel(ends[1].detach())


def test_frames_need_the_standard_library_alone() -> None:
    """The modules ``frames`` and ``child`` can be imported without ``site-packages``, which a child does not have."""
    code = "import sys; sys.path.append(sys.argv[1]); import securebench.ipc.frames, securebench.ipc.child"
    root = Path(securebench.__file__).resolve().parents[1]
    subprocess.run([sys.executable, "-I", "-S", "-c", code, str(root)], check=True)
