"""L10: whose a thing is, and when nobody's any more."""

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
    """An owner comes back from its label."""
    assert Owner.parse(HERE.label()) == HERE
    assert HERE.pid == os.getpid()


@pytest.mark.parametrize("label", ["", "x", "a/b/c/d", "a/b/-1/d", "a/b/1", "a/b/1/d/e", "a/b/²/d", "///"])
def test_other_labels_say_nothing(label: str) -> None:
    """What no driver wrote is nobody's."""
    assert Owner.parse(label) is None


def test_our_own_is_alive() -> None:
    """This process lives, and can be judged from here."""
    assert HERE.is_alive()
    assert HERE.can_be_judged()


def test_an_ended_process_is_gone() -> None:
    """A process that has ended is gone."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = replace(HERE, pid=process.pid, start=start_of(process.pid))
    assert owner.is_alive()
    process.communicate(b"\n")
    assert not owner.is_alive()


def test_a_zombie_is_gone() -> None:
    """A process that nobody has waited for runs no more, although its pid is taken."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    start = start_of(process.pid)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not replace(HERE, pid=process.pid, start=start).is_alive()
    process.wait()


def test_a_pid_that_is_used_again_is_somebody_else() -> None:
    """A process with the same pid and another start time is not the owner."""
    assert not replace(HERE, start="1").is_alive()


def test_another_users_process_is_alive() -> None:
    """A process that may not be signalled lives all the same."""
    assert replace(HERE, pid=1, start=start_of(1)).is_alive()


def test_an_owner_elsewhere_cannot_be_judged() -> None:
    """A process before a reboot or in another pid namespace is beyond judgement; the first is of another boot."""
    before, elsewhere = replace(HERE, boot="other"), replace(HERE, namespace="other")
    assert not before.can_be_judged()
    assert not elsewhere.can_be_judged()
    assert (before.is_of_this_boot(), elsewhere.is_of_this_boot()) == (False, True)


def start_of(pid: int) -> str:
    """Return a process's start time."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
