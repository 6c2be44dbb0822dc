"""Cgroups: the hierarchies that this user can use, and the group of each sandbox in them.

Version 1 has a hierarchy for each controller, version 2 a single one. A hybrid setup is used as version 1.

Users other than root need a delegated group: they can write to it, and they can enable its controllers for its child
groups. The supervisor looks at the user's own group and the ancestors of that group, and uses the topmost one that is
delegated. Without a delegated group, cgroups enforce no limits, and the supervisor reports that.
"""

from __future__ import annotations

import errno
import os
import signal
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

NAMESPACE = "securebench"
"""The name of the directory for SecureBench's cgroups in each hierarchy."""

CONTROLLERS = ("memory", "pids", "cpu")

INNER = "runtime"
"""Runtimes that manage cgroups themselves create a group with this name inside a sandbox's group."""

_MEMORY_LEFT = 8 * 1024 * 1024
"""The maximum number of bytes that may still be charged to a group when it is reused.

They are page cache, and kernel structures that are freed gradually.
"""

_CHARGED_AT_ONCE = 1024 * 1024
"""An upper bound on the number of bytes that the kernel charges to a group in one step.

If usage is this close to the limit, a charge can fail.
"""

CPU_PERIOD = 100_000
"""The period of the CPU quota in microseconds."""


class Hierarchy:
    """A cgroup hierarchy.

    Groups are created in the directory :data:`NAMESPACE` below ``path``. They can use ``controllers``.
    """

    __slots__ = ("controllers", "path", "unified")

    def __init__(self, path: str, controllers: tuple[str, ...], *, unified: bool) -> None:
        self.path = path
        self.controllers = controllers
        self.unified = unified

    def directory(self, name: str) -> str:
        """Return the directory of the group ``name``."""
        return f"{self.path}/{NAMESPACE}/{name}"

    def make_parent(self, name: str) -> None:
        """Create the group ``name`` and its parents, so that groups below it can have limits. Raises ``OSError``."""
        path = self.path
        for part in (NAMESPACE, name):
            path = f"{path}/{part}"
            with suppress(FileExistsError):
                os.mkdir(path)
            if self.unified:
                enable_controllers(path, self.controllers)


def find_hierarchies(
    mounts: str | None = None, own: str | None = None, *, other_controllers: bool = False
) -> list[Hierarchy]:
    """Return the hierarchies that this process can use.

    ``mounts`` and ``own`` are the texts of its ``mountinfo`` and ``cgroup`` files in ``/proc``, which are read by
    default. With ``other_controllers``, include hierarchies of controllers that SecureBench does not use, for runtimes
    that use all controllers.
    """
    mounts = _read("/proc/self/mountinfo") if mounts is None else mounts
    own = _read("/proc/self/cgroup") if own is None else own
    version_1 = [found for found in _version_1(mounts) if found.controllers or other_controllers]
    return [*version_1, *_version_2(mounts, own)]


def find_group_directories() -> list[str]:
    """Return every directory below which supervisors of this user may have created groups."""
    mounts = _read("/proc/self/mountinfo")
    version_1 = [mount_point for mount_point, kind, _ in _mounts(mounts) if kind == "cgroup"]
    return [*version_1, *(hierarchy.path for hierarchy in find_hierarchies(mounts) if hierarchy.unified)]


def _version_1(mounts: str) -> list[Hierarchy]:
    found: dict[str, Hierarchy] = {}
    for mount_point, kind, options in _mounts(mounts):
        if kind == "cgroup" and os.access(mount_point, os.W_OK):
            names = tuple(name for name in CONTROLLERS if name in options)
            found.setdefault(",".join(options), Hierarchy(mount_point, names, unified=False))  # may be mounted twice
    return list(found.values())


def _version_2(mounts: str, own: str) -> list[Hierarchy]:
    path = next((line[3:].strip("/") for line in own.splitlines() if line.startswith("0::")), "")
    for mount_point, kind, _ in _mounts(mounts):
        candidate = mount_point
        for part in ("", *path.split("/")) if kind == "cgroup2" else ():
            candidate = f"{candidate}/{part}".rstrip("/")
            if controllers := _delegated(candidate):
                return [Hierarchy(candidate, controllers, unified=True)]
    return []


def _delegated(directory: str) -> tuple[str, ...]:
    """Enable the available controllers for groups below ``directory``, and return them. Return ``()`` on failure."""
    if not (os.access(directory, os.W_OK) and os.access(f"{directory}/cgroup.procs", os.W_OK)):
        return ()
    available = _read(f"{directory}/cgroup.controllers").split()
    usable = tuple(name for name in CONTROLLERS if name in available)
    try:
        enable_controllers(directory, usable)
    except OSError:  # the group contains processes, or was not delegated to this user after all
        return ()
    return usable


def enable_controllers(directory: str, controllers: tuple[str, ...]) -> None:
    """Enable ``controllers`` for the groups below ``directory`` (version 2). Raises ``OSError``."""
    missing = set(controllers) - set(_read(f"{directory}/cgroup.subtree_control").split())
    if missing:
        _write(f"{directory}/cgroup.subtree_control", " ".join(f"+{name}" for name in sorted(missing)))


def hybrid_mounts() -> list[str]:
    """Return the mount points of cgroups version 2 if version 1 is mounted too, otherwise an empty list."""
    mounts = _mounts(_read("/proc/self/mountinfo"))
    has_version_1 = any(kind == "cgroup" for _, kind, _ in mounts)
    return [mount_point for mount_point, kind, _ in mounts if has_version_1 and kind == "cgroup2"]


class Group:
    """The group of one sandbox in each hierarchy: its limits, processes and out-of-memory kills.

    With ``inner``, the runtime creates and removes its own group inside this one, for the container alone.
    """

    def __init__(self, hierarchies: list[Hierarchy], name: str, *, inner: bool) -> None:
        """Create the group, without limits. Raises ``OSError``."""
        self._hierarchies = hierarchies
        self._directories = [hierarchy.directory(name) for hierarchy in hierarchies]
        self._inner = inner
        self._kills: Callable[[], int] = int
        self._kills_at_limit: Callable[[], int] = int
        self._limits: dict[str, float] = {}
        try:
            for hierarchy, directory in zip(hierarchies, self._directories, strict=True):
                os.mkdir(directory)
                if "memory" in hierarchy.controllers:
                    self._kills = _kill_counter(directory, unified=hierarchy.unified, inner=inner)
                    self._kills_at_limit = partial(_read_count, f"{directory}/memory.events", "oom")
                    if not hierarchy.unified:
                        self._kills_at_limit = self._kills_of_full
        except OSError:
            self.remove()
            raise

    def limit(self, limits: dict[str, float]) -> None:
        """Set the group's limits: ``memory`` in bytes, the number of ``pids``, ``cpu`` in cores. Raises ``OSError``."""
        if limits == self._limits:  # a reused group often has these limits already
            return
        self._limits = {}
        for hierarchy, directory in zip(self._hierarchies, self._directories, strict=True):
            _limit(hierarchy, directory, limits)
        self._limits = limits

    def enter(self) -> None:
        """Move this process into the group, unless the runtime creates an inner group for its container."""
        for path in self.process_lists():
            _write(path, "0")

    def process_lists(self) -> list[str]:
        """Return the files to which a process writes 0 to enter the group. Empty if the runtime uses its own group."""
        return [] if self._inner else [f"{directory}/cgroup.procs" for directory in self._directories]

    def out_of_memory_kills(self) -> int:
        """Return the group's number of out-of-memory kills.

        For a version 1 group with an inner group, return the number of out-of-memory events instead.
        """
        return self._kills()

    def kills_at_limit(self) -> int:
        """Return a count that rises if a kill is due to this group's own limit.

        A kill due to a parent's limit, or to a lack of memory on the machine, does not count.

        Version 2 counts how often the group ran out of memory at its limit. Version 1 reports only the peak usage,
        including page cache. If the peak has reached the limit, all kills count.
        """
        return self._kills_at_limit()

    def reset_peak(self) -> None:
        """Set the peak usage to the current usage, before another sandbox uses the group.

        Do nothing for version 2, where the peak usage is not used.
        """
        for path, _ in self._peaks():
            _write(path, "0")

    def kill(self) -> None:
        """Kill every process in the group."""
        for directory in self._all():
            kill_all(directory)

    def is_empty(self) -> bool:
        """Whether the group contains no process."""
        return not any(_processes(directory) for directory in self._all())

    def is_as_new(self) -> bool:
        """Whether the group contains no process and is charged for almost no memory."""
        return self.is_empty() and self._memory_used() <= _MEMORY_LEFT

    def remove(self) -> bool:
        """Remove the group. Return ``False`` if it still exists.

        The kernel keeps a group briefly after its last process exits.
        """
        self._kills = self._kills_at_limit = int
        gone = {directory for directory in self._all() if remove_group(directory)}
        self._directories = [directory for directory in self._directories if directory not in gone]
        return not self._directories

    def _kills_of_full(self) -> int:
        full = any(int(_read(peak)) >= int(_read(limit)) - _CHARGED_AT_ONCE for peak, limit in self._peaks())
        return self._kills() if full else 0

    def _peaks(self) -> list[tuple[str, str]]:
        """Return a pair of files for memory, and a pair for memory with swap, if they exist. Not used with version 2.

        The first file of a pair contains the peak usage, the second file the limit.

        The counters of failed charges would be more precise, but newer kernels leave them at zero.
        """
        kinds = [
            f"{directory}/memory{kind}"
            for hierarchy, directory in zip(self._hierarchies, self._directories, strict=True)
            if "memory" in hierarchy.controllers and not hierarchy.unified
            for kind in (".", ".memsw.")
        ]
        found = [(f"{kind}max_usage_in_bytes", f"{kind}limit_in_bytes") for kind in kinds]
        return [(peak, limit) for peak, limit in found if os.path.exists(peak)]

    def _memory_used(self) -> int:
        for hierarchy, directory in zip(self._hierarchies, self._directories, strict=True):
            if "memory" in hierarchy.controllers:
                return int(_read(f"{directory}/memory.{'current' if hierarchy.unified else 'usage_in_bytes'}"))
        return 0

    def _all(self) -> list[str]:
        inner = [f"{directory}/{INNER}" for directory in self._directories] if self._inner else []
        return inner + self._directories


def kill_all(directory: str) -> None:
    """Kill every process of the group at ``directory``."""
    for pid in _processes(directory):
        with suppress(ProcessLookupError):
            if pid:  # 0 is a process in another pid namespace; kill(0) would kill this process's process group
                os.kill(pid, signal.SIGKILL)


def remove_group(directory: str) -> bool:
    """Remove the group at ``directory``, and return whether it is gone."""
    try:
        os.rmdir(directory)
    except OSError as error:
        return error.errno == errno.ENOENT
    return True


def _kill_counter(directory: str, *, unified: bool, inner: bool) -> Callable[[], int]:
    """Return a function that returns the number of out-of-memory kills in a group and the groups inside it.

    Version 1 counts a kill only in the group of the killed process. So for a version 1 group with an inner group, an
    eventfd counts out-of-memory events instead.
    """
    if inner and not unified:
        return _OomEvents(directory).count
    path = f"{directory}/memory.{'events' if unified else 'oom_control'}"
    return lambda: _read_count(path, "oom_kill")


def _read_count(path: str, field: str) -> int:
    """Return the number after ``field`` in the file at ``path``, or 0 if the field is missing."""
    return next((int(line.split()[1]) for line in _read(path).splitlines() if line.startswith(f"{field} ")), 0)


class _OomEvents:
    """Counts how often a version 1 group, or a group inside it, ran out of memory."""

    def __init__(self, directory: str) -> None:
        self._seen = 0
        self._events = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        control = os.open(f"{directory}/memory.oom_control", os.O_RDONLY)
        try:
            _write(f"{directory}/cgroup.event_control", f"{self._events} {control}")
        finally:
            os.close(control)

    def __del__(self) -> None:
        os.close(self._events)

    def count(self) -> int:
        with suppress(BlockingIOError):
            self._seen += os.eventfd_read(self._events)
        return self._seen


def _processes(directory: str) -> list[int]:
    try:
        return [int(pid) for pid in _read(f"{directory}/cgroup.procs").split()]
    except OSError:  # the group was removed
        return []


def _limit(hierarchy: Hierarchy, directory: str, limits: dict[str, float]) -> None:
    swap = f"{directory}/memory.{'swap.max' if hierarchy.unified else 'memsw.limit_in_bytes'}"
    has_swap = "memory" in hierarchy.controllers and os.access(swap, os.W_OK)  # missing without swap accounting
    if has_swap and not hierarchy.unified:
        # The swap limit must never be below the memory limit, which is about to change and may rise in a reused group.
        _write(swap, "-1")
    for controller in hierarchy.controllers:
        settings = (_settings_2 if hierarchy.unified else _settings_1)(controller, limits[controller])
        for name, value in settings.items():
            _write(f"{directory}/{name}", value)
    if has_swap:
        _write(swap, "0" if hierarchy.unified else f"{limits['memory']:.0f}")


def _settings_1(controller: str, limit: float) -> dict[str, str]:
    if controller == "cpu":
        return {"cpu.cfs_period_us": str(CPU_PERIOD), "cpu.cfs_quota_us": f"{limit * CPU_PERIOD:.0f}"}
    return {"memory.limit_in_bytes" if controller == "memory" else "pids.max": f"{limit:.0f}"}


def _settings_2(controller: str, limit: float) -> dict[str, str]:
    return {f"{controller}.max": f"{limit * CPU_PERIOD:.0f} {CPU_PERIOD}" if controller == "cpu" else f"{limit:.0f}"}


def _mounts(text: str) -> list[tuple[str, str, list[str]]]:
    """Return the mount point, the type and the options of each file system in a ``mountinfo`` text."""
    found = []
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        found.append((before.split(" ")[4], kind, options.split(",")))
    return found


def _read(path: str) -> str:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = b""
        while piece := os.read(descriptor, 65536):
            text += piece
        return text.decode()
    finally:
        os.close(descriptor)


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
