"""The keeper's loop: what it does with an event that was for somebody else."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any

import pytest

from securebench.sandboxes.oci.keeper.loop import Keeper


@pytest.mark.timeout(10)
def test_an_event_of_an_earlier_job_ends_nothing_and_holds_nothing_up() -> None:
    """A descriptor may have the number of one that was closed in the same round: nothing has been said on it yet."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ended: list[Any] = []
    keeper = Keeper.__new__(Keeper)
    keeper._end = ended.append  # type: ignore[method-assign, assignment]  # to see what it would end
    cell: Any = SimpleNamespace()
    job: Any = SimpleNamespace(channel=ours)
    keeper._hear(cell, job)
    assert ended == []
    theirs.send(b"kill")
    keeper._hear(cell, job)
    assert ended == [cell]
    ours.close()
    theirs.close()
