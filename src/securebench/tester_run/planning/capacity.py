"""How many tasks this machine can run at once, given its free resources and the limits of a sandbox."""

from __future__ import annotations

import os
import re
import resource
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from securebench.limits import MIB
from securebench.plurals import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from securebench.limits import Limits
    from securebench.resources import JsonValue

MEMORY_SHARE: Final = 0.9
"""The share of the memory that sandboxes may use together."""

_WAITING_AGENTS: Final = 4
"""Number of agents per core, if they use a model provider. They mostly wait for their model."""

_DESCRIPTORS: Final = 24
"""Open files of this process for each sandbox: pipes, channels, and files that are being copied. About 10 are usual."""
_DESCRIPTORS_OF_RUN: Final = 64
_DISK_OF_RUN: Final = 256 * MIB
"""Bytes of disk space that stay free for records, logs and small candidates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What this process may still use: bytes of ``memory`` and ``disk``, ``cores``, and ``open_files``."""

    memory: int
    cores: float
    disk: int
    open_files: int

    @classmethod
    def of_this_machine(cls, directories: Iterable[Path]) -> Capacity:
        """Return what is free now.

        ``disk`` is the least free space on the file systems of ``directories``, which need not exist.
        """
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        used = len(list(Path("/proc/self/fd").iterdir()))
        return cls(
            memory=free_memory(),
            cores=available_cores(),
            disk=min(shutil.disk_usage(_existing(directory)).free for directory in directories),
            open_files=(1 << 20 if soft == resource.RLIM_INFINITY else soft) - used,
        )


class WorkerChoice(NamedTuple):
    """The number of workers that ``auto`` chose: the smallest of ``bounds``. ``decided_by`` names this bound."""

    workers: int
    decided_by: str
    bounds: Mapping[str, int]

    def describe(self) -> str:
        """Return the choice as text for users."""
        others = ", ".join(f"{name} {bound}" for name, bound in self.bounds.items() if name != self.decided_by)
        return f"auto: {counted(self.workers, 'worker')}, limited by {self.decided_by} (other limits: {others})"

    def to_json(self) -> dict[str, JsonValue]:
        """Return the choice as it appears in ``run.json``."""
        return {"decided_by": self.decided_by, "bounds": dict(self.bounds)}


def choose_workers(
    capacity: Capacity, limits: Limits, *, sandboxes: int = 1, waiting: bool = False, max_workers: int
) -> WorkerChoice:
    """Return how many tasks to run at once, at least one and at most ``max_workers``.

    A task uses up to ``sandboxes`` sandboxes at once, each with ``limits``. ``waiting`` means that its agent mostly
    waits for its model.
    """
    cores = capacity.cores * (_WAITING_AGENTS if waiting else 1)
    found = {
        "cores": int(cores / min(limits.cpus, cores)),
        "memory": int(capacity.memory * MEMORY_SHARE) // (limits.memory * sandboxes + limits.workspace),
        "disk": (capacity.disk - _DISK_OF_RUN) // limits.workspace,
        "open files": (capacity.open_files - _DESCRIPTORS_OF_RUN) // (_DESCRIPTORS * sandboxes),
        "tasks": max_workers,
    }
    bounds = {name: max(1, bound) for name, bound in found.items()}
    decided_by = min(bounds, key=lambda name: found[name])
    return WorkerChoice(bounds[decided_by], decided_by, bounds)


def available_memory(mounts: str | None = None, own: str | None = None) -> int:
    """Return how many bytes this process and its children may use in all: the machine's memory or a lower cgroup limit.

    The cgroup limit is the lowest limit of the process's own cgroup and of the parents of this cgroup. In a container,
    or in a service with ``MemoryMax``, it may be lower than the machine's memory. ``mounts`` and ``own`` are the texts
    of this process's ``mountinfo`` and ``cgroup`` files; by default, the files are read.
    """
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([physical, *(limit for limit, _ in _memory_groups(mounts, own))])


def free_memory(mounts: str | None = None, own: str | None = None) -> int:
    """Return the free memory in bytes: that of the machine or, if lower, the lowest of this process's cgroups."""
    found = re.search(r"^MemAvailable: +(\d+) kB$", _read(Path("/proc/meminfo")), re.MULTILINE)
    of_machine = int(found[1]) * 1024 if found else available_memory(mounts, own)
    of_groups = (limit - used for limit, used in _memory_groups(mounts, own))
    return max(0, min([of_machine, *of_groups]))


def available_cores(mounts: str | None = None, own: str | None = None) -> float:
    """Return how many cores this process may use: its CPU affinity or, if lower, the lowest quota of its cgroups."""
    cores = float(len(os.sched_getaffinity(0)))
    for version, group in _groups("cpu", mounts, own):
        if version == 1:  # -1 means no quota
            quota, period = (_read(group / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period"))
        else:  # "max" means no quota
            quota, _, period = _read(group / "cpu.max").strip().partition(" ")
        if quota.isdigit() and period.isdigit():
            cores = min(cores, int(quota) / int(period))
    return cores


def _memory_groups(mounts: str | None, own: str | None) -> Iterator[tuple[int, int]]:
    """Yield the memory limit of each cgroup that has one, and the memory that the cgroup uses, both in bytes.

    In cgroup version 1, a huge number means that there is no limit. The used memory does not include cached files that
    were not accessed recently: the kernel drops them when it needs the memory.
    """
    for version, group in _groups("memory", mounts, own):
        names = ("limit_in_bytes", "usage_in_bytes", "total_inactive_file")
        limit_file, usage_file, cached = names if version == 1 else ("max", "current", "inactive_file")
        limit, usage = (_read(group / f"memory.{name}").strip() for name in (limit_file, usage_file))
        if limit.isdigit():
            found = re.search(rf"^{cached} (\d+)$", _read(group / "memory.stat"), re.MULTILINE)
            yield int(limit), max(0, int(usage or 0) - int(found[1] if found else 0))


def _groups(controller: str, mounts: str | None, own: str | None) -> Iterator[tuple[int, Path]]:
    """Yield this process's cgroup for ``controller`` and the visible parents of this cgroup.

    Each is given by its version (1 or 2) and its path.
    """
    mounts = _read(Path("/proc/self/mountinfo")) if mounts is None else mounts
    own = _read(Path("/proc/self/cgroup")) if own is None else own
    paths = {controllers: path for _, controllers, path in (line.split(":", 2) for line in own.splitlines())}
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        root, top = before.split(" ")[3:5]
        kind, _, options = after.split(" ", 2)
        if kind == "cgroup2":
            version, path = 2, paths.get("")
        elif kind == "cgroup" and controller in options.split(","):
            version, path = 1, next((path for names, path in paths.items() if controller in names.split(",")), None)
        else:
            continue
        if path is not None:
            # A container may see only part of a hierarchy, while its own path starts at the real root.
            below = Path(path).relative_to(root) if Path(path).is_relative_to(root) else Path()
            group = Path(top, below)
            yield from ((version, directory) for directory in (group, *group.parents) if directory.is_relative_to(top))


def _existing(path: Path) -> Path:
    """Return ``path``, or its nearest parent that exists."""
    return next(place for place in (path, *path.parents) if place.exists())


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
