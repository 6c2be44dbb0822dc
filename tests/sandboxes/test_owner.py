"""L10: the owner of a resource, and how to tell whether the owner is still running."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from securebench.sandboxes.owner import Owner

HERE = Owner.current()


def test_a_label_says_all() -> None:
    """Parsing an owner's label returns the same owner."""
    assert Owner.parse(HERE.label()) == HERE
    assert HERE.pid == os.getpid()


@pytest.mark.parametrize("label", ["", "x", "a/b/c/d", "a/b/-1/d", "a/b/1", "a/b/1/d/e", "a/b/²/d", "///"])
def test_other_labels_say_nothing(label: str) -> None:
    """Parsing a text that is not an owner's label returns ``None``."""
    assert Owner.parse(label) is None


def test_our_own_is_alive() -> None:
    """For this process, ``is_alive`` and ``can_be_judged`` are true."""
    assert HERE.is_alive()
    assert HERE.can_be_judged()


def test_an_ended_process_is_gone() -> None:
    """An owner is alive while its process runs, and not after the process has ended."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = replace(HERE, pid=process.pid, start=start_of(process.pid))
    assert owner.is_alive()
    process.communicate(b"\n")
    assert not owner.is_alive()


def test_a_zombie_is_gone() -> None:
    """A process that has ended is not alive, even if its parent has not waited for it and its pid is still taken."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    start = start_of(process.pid)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not replace(HERE, pid=process.pid, start=start).is_alive()
    process.wait()


def test_a_pid_that_is_used_again_is_somebody_else() -> None:
    """An owner is not alive if the process with its pid has another start time."""
    assert not replace(HERE, start="1").is_alive()


def test_another_users_process_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Process 1 is alive, even if it belongs to another user and this process may not send it signals."""

    def refused(_pid: int, _signal: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refused)
    assert replace(HERE, pid=1, start=start_of(1)).is_alive()


def test_an_owner_elsewhere_cannot_be_judged() -> None:
    """``can_be_judged`` is false for another boot or pid namespace, and ``is_of_this_boot`` only for another boot."""
    before, elsewhere = replace(HERE, boot="other"), replace(HERE, namespace="other")
    assert not before.can_be_judged()
    assert not elsewhere.can_be_judged()
    assert (before.is_of_this_boot(), elsewhere.is_of_this_boot()) == (False, True)


def start_of(pid: int) -> str:
    """Return a process's start time."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
