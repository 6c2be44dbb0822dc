"""L10: whose container it is, and when nobody's any more."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from securebench.sandboxes.docker_owner import FORGOTTEN_SECONDS, OWNER_LABEL, Owner, is_abandoned

HERE = Owner.current()
NOW = 1_000_000_000.0


def entry(label: str, state: str = "running", age: float = 0) -> dict[str, object]:
    """Return an entry of the engine's list."""
    return {"Id": "x", "Labels": {OWNER_LABEL: label}, "State": state, "Created": NOW - age}


def test_a_label_says_all() -> None:
    """An owner comes back from its label."""
    assert Owner.parse(HERE.label()) == HERE
    assert HERE.pid == os.getpid()


@pytest.mark.parametrize("label", ["", "x", "a/b/c/d", "a/b/-1/d", "a/b/1", "a/b/1/d/e", "a/b/²/d", "///"])
def test_other_labels_say_nothing(label: str) -> None:
    """What no driver wrote is nobody's, and never touched."""
    assert Owner.parse(label) is None
    assert not is_abandoned(entry(label, "exited", 10 * FORGOTTEN_SECONDS), NOW)


@pytest.mark.parametrize("labels", [None, {}, {"other": "label"}])
def test_a_container_without_our_label_is_not_ours(labels: object) -> None:
    """A container of somebody else is never touched."""
    assert not is_abandoned({"Id": "x", "Labels": labels, "State": "exited", "Created": 0}, NOW)


def test_our_own_is_alive() -> None:
    """This process lives, so what it made stays."""
    assert HERE.is_alive()
    assert not is_abandoned(entry(HERE.label()), NOW)


def test_an_ended_process_is_gone() -> None:
    """A process that has ended is gone, and what it made is abandoned, in whatever state."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = replace(HERE, pid=process.pid, start=start_of(process.pid))
    assert owner.is_alive()
    process.communicate(b"\n")
    assert not owner.is_alive()
    assert all(is_abandoned(entry(owner.label(), state), NOW) for state in ("running", "created", "exited"))


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


@pytest.mark.parametrize("elsewhere", [replace(HERE, boot="other"), replace(HERE, namespace="other")])
@pytest.mark.parametrize(
    ("state", "age", "abandoned"),
    [
        ("running", 10 * FORGOTTEN_SECONDS, False),
        ("created", 0, False),
        ("created", FORGOTTEN_SECONDS + 1, True),
        ("exited", FORGOTTEN_SECONDS - 1, False),
        ("exited", FORGOTTEN_SECONDS + 1, True),
    ],
)
def test_an_owner_elsewhere_gets_the_benefit_of_the_doubt(
    elsewhere: Owner, state: str, age: float, abandoned: bool
) -> None:
    """Of an owner before a reboot, or in another container, only what has long stopped is removed."""
    assert is_abandoned(entry(elsewhere.label(), state, age), NOW) is abandoned


def start_of(pid: int) -> str:
    """Return a process's start time."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
