"""How much memory a run may count on."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from securebench.tester_run.memory import available_memory
from securebench.tester_run.plan import affordable_workers

if TYPE_CHECKING:
    from pathlib import Path

PHYSICAL = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
MIB = 1024 * 1024


def write(path: Path, text: str) -> None:
    """Write a file of a group, which is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(("above", "own", "found"), [("max", "max", PHYSICAL), ("max", 64, 64), (32, 64, 32)])
def test_version_2_counts_every_group_above(tmp_path: Path, above: str | int, own: str | int, found: int) -> None:
    """The lowest limit between our group and the top, in MiB."""
    for name, limit in (("system.slice", above), ("system.slice/runner.service", own)):
        write(tmp_path / name / "memory.max", f"{limit if limit == 'max' else int(limit) * MIB}\n")
    mounts = f"30 23 0:26 / {tmp_path} rw,nosuid - cgroup2 cgroup2 rw\n"
    expected = found if found == PHYSICAL else found * MIB
    assert available_memory(mounts, "0::/system.slice/runner.service\n") == expected


def test_version_1_in_a_container_without_a_namespace_of_its_own(tmp_path: Path) -> None:
    """It sees its own group as the top, and is told the path of the whole machine."""
    write(tmp_path / "memory.limit_in_bytes", f"{100 * MIB}\n")
    mounts = f"30 23 0:26 /docker/abc {tmp_path} ro - cgroup cgroup rw,memory\n31 23 0:27 / /x rw - tmpfs tmpfs rw\n"
    own = "9:name=systemd:/docker/abc\n4:memory:/docker/abc\n0::/docker/abc\n"
    assert available_memory(mounts, own) == 100 * MIB


def test_version_1_without_a_limit(tmp_path: Path) -> None:
    """It says so with a number that is larger than any machine."""
    write(tmp_path / "memory.limit_in_bytes", "9223372036854771712\n")
    mounts = f"30 23 0:26 / {tmp_path} rw - cgroup cgroup rw,memory\n"
    assert available_memory(mounts, "4:memory:/\n") == PHYSICAL


def test_what_cannot_be_seen_is_no_limit() -> None:
    """No hierarchy, no group, a group that is not there."""
    assert available_memory("", "") == PHYSICAL
    assert available_memory("30 23 0:26 / /nowhere rw - cgroup2 cgroup2 rw\n", "0::/gone\n") == PHYSICAL


def test_workers_fit_into_what_the_group_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run in a container of 4 GiB starts three sandboxes of 1 GiB at once, whatever the machine has."""
    monkeypatch.setattr("securebench.tester_run.plan.available_memory", lambda: 4096 * MIB)
    assert affordable_workers(8, 1024 * MIB) == 3
