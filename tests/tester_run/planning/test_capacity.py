"""How many tasks run at once: the resources that this process may use, and the bound that decides."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from securebench.limits import GIB, Limits
from securebench.tester_run.planning.capacity import (
    Capacity,
    available_cores,
    available_memory,
    choose_workers,
    free_memory,
)
from securebench.tester_run.planning.plan import affordable_workers

if TYPE_CHECKING:
    from pathlib import Path

PHYSICAL = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
MIB = 1024 * 1024


def write(path: Path, text: str) -> None:
    """Write a file of a cgroup, and create the cgroup's directory if needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(("above", "own", "found"), [("max", "max", PHYSICAL), ("max", 64, 64), (32, 64, 32)])
def test_version_2_counts_every_group_above(tmp_path: Path, above: str | int, own: str | int, found: int) -> None:
    """In cgroup version 2, the lowest limit of the process's cgroup and its parents counts. Limits are in MiB here."""
    for name, limit in (("system.slice", above), ("system.slice/runner.service", own)):
        write(tmp_path / name / "memory.max", f"{limit if limit == 'max' else int(limit) * MIB}\n")
    mounts = f"30 23 0:26 / {tmp_path} rw,nosuid - cgroup2 cgroup2 rw\n"
    expected = found if found == PHYSICAL else found * MIB
    assert available_memory(mounts, "0::/system.slice/runner.service\n") == expected


def test_version_1_in_a_container_without_a_namespace_of_its_own(tmp_path: Path) -> None:
    """The limit of a container's cgroup is found although two paths of the cgroup differ.

    In the mount, the container's cgroup is the top directory. The path in the process's list of cgroups starts at the
    host's top directory.
    """
    write(tmp_path / "memory.limit_in_bytes", f"{100 * MIB}\n")
    mounts = f"30 23 0:26 /docker/abc {tmp_path} ro - cgroup cgroup rw,memory\n31 23 0:27 / /x rw - tmpfs tmpfs rw\n"
    own = "9:name=systemd:/docker/abc\n4:memory:/docker/abc\n0::/docker/abc\n"
    assert available_memory(mounts, own) == 100 * MIB


def test_version_1_without_a_limit(tmp_path: Path) -> None:
    """Cgroup version 1 shows "no limit" as a huge number. Then the machine's memory counts."""
    write(tmp_path / "memory.limit_in_bytes", "9223372036854771712\n")
    mounts = f"30 23 0:26 / {tmp_path} rw - cgroup cgroup rw,memory\n"
    assert available_memory(mounts, "4:memory:/\n") == PHYSICAL


def test_what_cannot_be_seen_is_no_limit() -> None:
    """The machine's memory counts if no cgroup is mounted or the process's cgroup does not exist."""
    assert available_memory("", "") == PHYSICAL
    assert available_memory("30 23 0:26 / /nowhere rw - cgroup2 cgroup2 rw\n", "0::/gone\n") == PHYSICAL


def test_workers_fit_into_what_the_group_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run in a container with 4 GiB starts at most three sandboxes of 1 GiB at once."""
    monkeypatch.setattr("securebench.tester_run.planning.plan.available_memory", lambda: 4096 * MIB)
    assert affordable_workers(8, 1024 * MIB) == 3


def test_memory_that_other_processes_use_is_not_free(tmp_path: Path) -> None:
    """Memory used in the cgroup is not free, except for cached files, which the kernel can drop."""
    write(tmp_path / "memory.max", f"{100 * MIB}\n")
    write(tmp_path / "memory.current", f"{70 * MIB}\n")
    write(tmp_path / "memory.stat", f"anon 1\ninactive_file {20 * MIB}\n")
    mounts = f"30 23 0:26 / {tmp_path} rw - cgroup2 cgroup2 rw\n"
    assert free_memory(mounts, "0::/\n") == 50 * MIB


@pytest.mark.parametrize(
    ("kind", "files", "cores"),
    [
        ("cgroup2 cgroup2 rw", {"cpu.max": "max 100000"}, None),
        ("cgroup2 cgroup2 rw", {"cpu.max": "50000 100000"}, 0.5),
        ("cgroup cgroup rw,cpu,cpuacct", {"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"}, None),
        ("cgroup cgroup rw,cpu,cpuacct", {"cpu.cfs_quota_us": "25000", "cpu.cfs_period_us": "100000"}, 0.25),
    ],
)
def test_cores_are_bounded_by_the_quota(tmp_path: Path, kind: str, files: dict[str, str], cores: float | None) -> None:
    """The CPU quota counts in both versions of cgroups. Without a quota, the CPU affinity of this process counts."""
    for name, text in files.items():
        write(tmp_path / name, f"{text}\n")
    found = available_cores(f"30 23 0:26 / {tmp_path} rw - {kind}\n", "0::/\n3:cpu,cpuacct:/\n")
    assert found == (cores or len(os.sched_getaffinity(0)))


@pytest.mark.parametrize(
    ("changed", "workers", "decided_by"),
    [
        ({}, 4, "cores"),
        ({"cores": 0.5}, 1, "cores"),
        ({"memory": 5 * GIB}, 2, "memory"),
        ({"memory": 0}, 1, "memory"),
        ({"disk": 3 * GIB}, 2, "disk"),
        ({"open_files": 64 + 24}, 1, "open files"),
    ],
)
def test_the_smallest_bound_decides(changed: dict[str, float], workers: int, decided_by: str) -> None:
    """The smallest bound is the number of workers. A run has at least one worker, even if no memory is free."""
    machine = {"memory": 64 * GIB, "cores": 4.0, "disk": 100 * GIB, "open_files": 20_000, **changed}
    choice = choose_workers(Capacity(**machine), Limits(), max_workers=256)  # type: ignore[arg-type]
    assert (choice.workers, choice.decided_by) == (workers, decided_by)
    assert choice.to_json() == {"decided_by": decided_by, "bounds": dict(choice.bounds)}


def test_the_needs_of_a_task_count() -> None:
    """The number of workers depends on the sandboxes of a task, their limits and the number of tasks.

    It also depends on whether agents mostly wait for their model.
    """
    machine = Capacity(memory=80 * GIB, cores=8, disk=100 * GIB, open_files=20_000)
    assert choose_workers(machine, Limits(memory=20 * GIB), sandboxes=2, max_workers=256).workers == 1
    assert choose_workers(machine, Limits(cpus=2), max_workers=256).workers == 4
    assert choose_workers(machine, Limits(cpus=64), max_workers=256).workers == 1
    assert choose_workers(machine, Limits(), max_workers=3).decided_by == "tasks"
    assert choose_workers(machine, Limits(), waiting=True, max_workers=256).workers == 32
