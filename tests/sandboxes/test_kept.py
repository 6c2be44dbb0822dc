"""Kept sandboxes: how many are kept, and when a task waits for one."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest

from securebench.sandboxes import kept as module
from securebench.sandboxes.base import SandboxSpec
from securebench.sandboxes.kept import KeptSandboxes
from securebench.testing.scripted_sandbox import DEFAULT_IMAGE, ScriptedDriver

if TYPE_CHECKING:
    from collections.abc import Iterator

IMAGE = ScriptedDriver().resolve_image(DEFAULT_IMAGE)
SPEC, OTHER = SandboxSpec(image=IMAGE), SandboxSpec(image=IMAGE, workdir="/tmp")


class Kept:
    """A closable object that stands in for a sandbox."""

    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        """Record the call."""
        self.closed = True


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[KeptSandboxes[Kept]]:
    """Yield the kept sandboxes of a run on a machine with one core."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    made: KeptSandboxes[Kept] = KeptSandboxes(ScriptedDriver())
    yield made
    made.close()


def test_a_sandbox_in_use_is_waited_for(kept: KeptSandboxes[Kept], monkeypatch: pytest.MonkeyPatch) -> None:
    """If as many sandboxes are in use as there are cores, the next task waits for one of them."""
    monkeypatch.setattr(module, "_WAIT_SECONDS", 60)
    first = Kept()
    assert kept.take(SPEC) is None
    taken: list[Kept | None] = []
    waiting = threading.Thread(target=lambda: taken.append(kept.take(SPEC)))
    waiting.start()
    waiting.join(0.05)
    assert waiting.is_alive()
    kept.put(SPEC, first)
    waiting.join(10)
    assert taken == [first]
    kept.put(SPEC, first)
    assert not first.closed


def test_a_task_whose_predecessor_kept_nothing_starts_its_own_at_once(
    kept: KeptSandboxes[Kept], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a task gives no sandbox back, its core is free, and the next task starts a sandbox without waiting."""
    monkeypatch.setattr(module, "_WAIT_SECONDS", 60)
    assert kept.take(SPEC) is None
    kept.put(SPEC, None)
    assert kept.take(SPEC) is None


def test_nobody_waits_for_long(kept: KeptSandboxes[Kept], monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that waited long enough starts a sandbox, so more may be in use than there are cores. All are kept."""
    monkeypatch.setattr(module, "_WAIT_SECONDS", 0.01)
    found = [kept.take(SPEC) for _ in range(3)]
    assert found == [None] * 3
    sandboxes = [Kept() for _ in found]
    for sandbox in sandboxes:
        kept.put(SPEC, sandbox)
    assert {kept.take(SPEC) for _ in found} == set(sandboxes)


def test_the_oldest_is_closed_if_there_are_too_many(kept: KeptSandboxes[Kept]) -> None:
    """If more sandboxes are idle than were ever in use at once, the oldest is closed, whatever its spec is."""
    assert kept.take(SPEC) is None
    first, second = Kept(), Kept()
    kept.put(SPEC, first)
    assert kept.take(OTHER) is None
    kept.put(OTHER, second)
    assert (first.closed, second.closed) == (True, False)
