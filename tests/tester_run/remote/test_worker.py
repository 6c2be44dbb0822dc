"""Closing a worker on another machine. The tests in tests/executors run its tasks on a cluster."""

from __future__ import annotations

import hashlib
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from securebench.errors import InfrastructureError
from securebench.executors.ray_slots import SlotActor
from securebench.tester_run.remote import worker as remote
from securebench.tester_run.remote.shipment import CANDIDATE, FILES

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.executors.base import RemoteWorker


def test_closing_waits_for_opening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a run ends while a worker opens, close() waits. The worker cannot be opened later, and leaves no directory."""
    monkeypatch.setenv(remote.DIRECTORY_VARIABLE, str(tmp_path))
    began, may_end = threading.Event(), threading.Event()

    def slow(_: object) -> str:
        began.set()
        assert may_end.wait(30)
        raise InfrastructureError("a test ended it")

    monkeypatch.setattr(remote, "files_of", slow)
    worker = remote.RemoteTrialWorker(b"settings")

    def open_worker() -> None:
        with suppress(InfrastructureError):
            worker.open()

    opening = threading.Thread(target=open_worker)
    opening.start()
    assert began.wait(30)
    closing = threading.Thread(target=worker.close)
    closing.start()
    closing.join(0.2)
    assert closing.is_alive()
    may_end.set()
    opening.join(30)
    closing.join(30)
    assert not closing.is_alive()
    with pytest.raises(InfrastructureError, match="the run has ended"):
        worker.open()
    assert [path for path in tmp_path.rglob("worker-*") if path.is_dir()] == []


def test_closing_waits_for_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a run ends while a worker writes content, close() waits for it. Later content is refused."""
    monkeypatch.setenv(remote.DIRECTORY_VARIABLE, str(tmp_path))
    began, may_end = threading.Event(), threading.Event()

    def slow(arriving: Path, _: Path) -> None:
        began.set()
        assert may_end.wait(30)
        arriving.with_name("late").touch()

    monkeypatch.setattr(remote, "_keep_file", slow)
    worker = remote.RemoteTrialWorker(b"settings")
    name = f"{FILES} sha256:{'0' * 64}"
    worker.take(name, b"content")
    taking = threading.Thread(target=worker.take, args=(name, b""))
    taking.start()
    assert began.wait(30)
    closing = threading.Thread(target=worker.close)
    closing.start()
    closing.join(0.2)
    assert closing.is_alive()
    may_end.set()
    taking.join(30)
    closing.join(30)
    assert not closing.is_alive()
    with pytest.raises(InfrastructureError, match="the run has ended"):
        worker.take(name, b"more")
    assert [path for path in tmp_path.rglob("worker-*") if path.is_dir()] == []


def test_workers_on_one_machine_share_files_but_no_candidate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the first worker on a machine needs the files of a run. Each worker needs its own copy of a candidate.

    A worker removes a candidate that it has sealed, and another worker may have the same candidate to verify.
    """
    monkeypatch.setenv(remote.DIRECTORY_VARIABLE, str(tmp_path))
    digest = hashlib.sha256(b"content").hexdigest()
    names = (f"{FILES} {digest}", f"{CANDIDATE} {digest}")
    first, second = remote.RemoteTrialWorker(b"settings"), remote.RemoteTrialWorker(b"settings")
    try:
        assert first.lacks(names) == second.lacks(names) == names
        for name in names:
            first.take(name, b"content")
            first.take(name, b"")
        assert first.lacks(names) == ()
        assert second.lacks(names) == names[1:]
    finally:
        first.close()
        second.close()


def test_a_slot_that_was_closed_makes_no_worker() -> None:
    """A closed slot refuses to begin: when a run ends, calls of the coordinator's threads may arrive in any order."""
    slot = SlotActor()
    slot.close()

    def make(_: bytes) -> RemoteWorker:
        raise AssertionError

    assert slot.begin(make, ()) == "the run has ended"
