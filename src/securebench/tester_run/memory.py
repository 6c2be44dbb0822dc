"""How much memory this process and its children may use: the machine's, or the limit of its cgroups."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def available_memory(mounts: str | None = None, own: str | None = None) -> int:
    """Return it in bytes. ``mounts`` and ``own`` are the texts of this process's ``mountinfo`` and ``cgroup`` files.

    The lowest limit of the process's own group and its parents counts. In a container, or in a service with
    ``MemoryMax``, it is less than the machine has.
    """
    mounts = _read(Path("/proc/self/mountinfo")) if mounts is None else mounts
    own = _read(Path("/proc/self/cgroup")) if own is None else own
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([physical, *_limits(mounts, own)])


def _limits(mounts: str, own: str) -> Iterator[int]:
    """Yield the visible memory limits. In version 1, no limit is a very large number."""
    for top, group, file in _groups(mounts, own):
        for directory in (group, *group.parents):
            if directory.is_relative_to(top) and (limit := _read(directory / file).strip()).isdigit():
                yield int(limit)


def _groups(mounts: str, own: str) -> Iterator[tuple[Path, Path, str]]:
    """Yield the mount point of each memory hierarchy, this process's group in it, and the name of the limit file."""
    paths = {controllers: path for _, controllers, path in (line.split(":", 2) for line in own.splitlines())}
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        root, top = before.split(" ")[3:5]
        kind, _, options = after.split(" ", 2)
        if kind == "cgroup2":
            path, file = paths.get(""), "memory.max"
        elif kind == "cgroup" and "memory" in options.split(","):
            path = next((path for names, path in paths.items() if "memory" in names.split(",")), None)
            file = "memory.limit_in_bytes"
        else:
            continue
        if path is not None:
            # A container may see only part of a hierarchy, while its own path starts at the real root.
            below = Path(path).relative_to(root) if Path(path).is_relative_to(root) else Path()
            yield Path(top), Path(top, below), file


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
