"""L10: who owns a container, and when it counts as abandoned."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from securebench.sandboxes.docker.driver import FORGOTTEN_SECONDS, OWNER_LABEL, is_abandoned
from securebench.sandboxes.owner import Owner

HERE = Owner.current()
NOW = 1_000_000_000.0


def entry(label: str, state: str = "running", age: float = 0) -> dict[str, object]:
    """Return an entry of the engine's list of containers, for one created ``age`` seconds before ``NOW``."""
    return {"Id": "x", "Labels": {OWNER_LABEL: label}, "State": state, "Created": NOW - age}


@pytest.mark.parametrize("label", ["", "x", "a/b/c/d", "a/b/-1/d", "a/b/1", "a/b/1/d/e", "a/b/²/d", "///"])
def test_other_labels_say_nothing(label: str) -> None:
    """A container with an invalid owner label never counts as abandoned."""
    assert not is_abandoned(entry(label, "exited", 10 * FORGOTTEN_SECONDS), NOW)


@pytest.mark.parametrize("labels", [None, {}, {"other": "label"}])
def test_a_container_without_our_label_is_not_ours(labels: object) -> None:
    """A container without an owner label never counts as abandoned."""
    assert not is_abandoned({"Id": "x", "Labels": labels, "State": "exited", "Created": 0}, NOW)


def test_our_own_stays() -> None:
    """A container of this process is not abandoned, because the process is running."""
    assert not is_abandoned(entry(HERE.label()), NOW)


def test_what_an_ended_process_made_is_abandoned() -> None:
    """A container is abandoned, whatever its state, once the process that created it has ended."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    start = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19]
    owner = replace(HERE, pid=process.pid, start=start)
    assert not is_abandoned(entry(owner.label()), NOW)
    process.communicate(b"\n")
    assert all(is_abandoned(entry(owner.label(), state), NOW) for state in ("running", "created", "exited"))


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
    """An owner may be from before a reboot or in another pid namespace. Whether it is alive is then unknown.

    Its containers count as abandoned only if they are old and not running.
    """
    assert is_abandoned(entry(elsewhere.label(), state, age), NOW) is abandoned
