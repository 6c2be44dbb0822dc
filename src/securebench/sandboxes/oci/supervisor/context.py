"""What a supervisor sets up once: its directory, the files shown to every sandbox, and where cgroups are made."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import Any

from securebench.sandboxes.oci.supervisor import cgroups, mounts
from securebench.sandboxes.oci.supervisor.processes import sealed_copy

_REMOVAL_SECONDS = 2.0
_RETRY_SECONDS = 0.01


class SupervisorContext:
    """What every container of a supervisor shares. ``run`` is its directory, ``group`` the name of its cgroups.

    ``inner_groups``: the runtime makes groups of its own within those of a container, in every hierarchy.
    ``program`` is a descriptor of a copy of the runtime, where it should be run from one.
    ``pooled``: cgroups are made before they are asked for.
    ``unreadable`` is the owner of the programs that sandboxes are shown, which nobody in them may read, only run.
    """

    def __init__(
        self,
        run: str,
        group: str,
        *,
        inner_groups: bool,
        unreadable: int | None = None,
        sealed: str | None = None,
        pooled: bool = True,
    ) -> None:
        """Look around. Nothing is made yet. ``sealed`` is the path of a runtime that is to be run from a copy."""
        self.run = run
        self.group = group
        self.inner_groups = inner_groups
        self.unreadable = unreadable
        self.pooled = pooled
        self.program = None if sealed is None else _sealed_copy(sealed)
        self.nested = _read("/proc/self/uid_map").split() != ["0", "0", "4294967295"]
        self.hierarchies = cgroups.find_hierarchies(other_controllers=inner_groups)

    def prepare(self, files: dict[str, str]) -> dict[str, Any]:
        """Make them, with copies of ``files`` (name: source) in :data:`SHOWN`. Return what a driver has to know.

        Raises ``OSError``.
        """
        mounts.mount_tmpfs(self.run, "711")
        os.mkdir(f"{self.run}/state", 0o700)
        self._show(files)
        self._hide_hybrid()
        self._make_groups()
        return {
            "uid_map": _read("/proc/self/uid_map"),
            "gid_map": _read("/proc/self/gid_map"),
            "drops_groups": _read("/proc/self/setgroups").strip() == "allow",
            "controllers": sorted({name for hierarchy in self.hierarchies for name in hierarchy.controllers}),
            "unified": any(hierarchy.unified for hierarchy in self.hierarchies),
        }

    def remove(self) -> None:
        """Remove what was made, also on the host."""
        deadline = time.monotonic() + _REMOVAL_SECONDS
        while not self._remove_groups() and time.monotonic() < deadline:
            time.sleep(_RETRY_SECONDS)
        with suppress(OSError):
            mounts.detach(self.run)
            os.unlink(f"{self.run}/{OWNER_FILE}")
            os.rmdir(self.run)

    def _show(self, files: dict[str, str]) -> None:
        """Copy them: a sandbox can see from where on the host something is mounted, and these are none of its.

        A process whose program its user may not read cannot be traced, and its memory and files in ``/proc`` cannot be
        opened, by others of that user: so a sandbox cannot get at its first process. A runtime that enters the sandbox
        can, as it has all capabilities over a namespace that the program's owner is in.
        """
        directory = f"{self.run}/{SHOWN}"
        os.mkdir(directory)
        mounts.mount_tmpfs(directory, "711")
        for name, source in files.items():
            with open(source, "rb") as original, open(f"{directory}/{name}", "wb") as copy:
                copy.write(original.read())
                if not os.access(source, os.X_OK):
                    os.fchmod(copy.fileno(), 0o644)
                elif self.unreadable is None:
                    os.fchmod(copy.fileno(), 0o755)
                else:
                    os.fchown(copy.fileno(), self.unreadable, self.unreadable)
                    os.fchmod(copy.fileno(), 0o111)
        mounts.make_read_only(directory)

    def _make_groups(self) -> None:
        try:
            for hierarchy in self.hierarchies:
                hierarchy.make_parent(self.group)
        except OSError:  # what looks writable is not: then there are no limits of this kind, and the driver says so
            self._remove_groups()
            self.hierarchies = []

    def _remove_groups(self) -> bool:
        gone = [cgroups.remove_group(hierarchy.directory(self.group)) for hierarchy in self.hierarchies]
        return all(gone)

    def _hide_hybrid(self) -> None:
        """Cover the cgroup2 mount beside version 1, if nothing of it is used: crun refuses to work with both."""
        if not any(hierarchy.unified for hierarchy in self.hierarchies):
            for mount_point in cgroups.hybrid_mounts():
                mounts.mount_tmpfs(mount_point, "755")


SHOWN = "shown"
"""The directory of the files that every sandbox is shown."""

OWNER_FILE = "owner"
"""The file of a run directory that says whose it is."""


def _sealed_copy(path: str) -> int | None:
    try:
        with open(path, "rb") as file:
            is_script = file.read(2) == b"#!"
        # A script's interpreter would look for it by a descriptor that is closed by then.
        return None if is_script else sealed_copy(path)
    except OSError:  # an administrator allows no programs in memory: the runtime does for itself what it can
        return None


def _read(path: str) -> str:
    with open(path) as file:
        return file.read()
