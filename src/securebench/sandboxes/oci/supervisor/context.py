"""The one-time setup of a supervisor: its directory, the files for all sandboxes, and the parent of their cgroups."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from securebench.sandboxes.oci.supervisor import cgroups, mounts
from securebench.sandboxes.oci.supervisor.processes import sealed_copy

if TYPE_CHECKING:
    from securebench.sandboxes.oci.wire import SupervisorSettings

_REMOVAL_SECONDS = 2.0
_RETRY_SECONDS = 0.01


class SupervisorContext:
    """The state that all containers of a supervisor share.

    ``program`` is a descriptor of a copy of the runtime, or ``None`` if the runtime is not run from a copy.
    """

    def __init__(self, settings: SupervisorSettings) -> None:
        """Inspect the machine, and copy the runtime to memory if it is to run from a copy. Create nothing else."""
        self.settings = settings
        self.run = settings.run
        self.group = settings.group
        self.program = None if settings.sealed is None else _sealed_copy(settings.sealed)
        self.nested = _read("/proc/self/uid_map").split() != ["0", "0", "4294967295"]
        self.hierarchies = cgroups.find_hierarchies(other_controllers=settings.inner_groups)

    def prepare(self, files: dict[str, str]) -> dict[str, Any]:
        """Set up everything, and copy ``files`` (source paths by name) to :data:`SHOWN`.

        Returns the report for the driver. Raises ``OSError``.
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
        """Remove what :meth:`prepare` created, including cgroups, and the directory ``run`` that the driver created."""
        deadline = time.monotonic() + _REMOVAL_SECONDS
        while not self._remove_groups() and time.monotonic() < deadline:
            time.sleep(_RETRY_SECONDS)
        with suppress(OSError):
            mounts.detach(self.run)
            os.unlink(f"{self.run}/{OWNER_FILE}")
            os.rmdir(self.run)

    def _show(self, files: dict[str, str]) -> None:
        """Copy ``files``. Sandboxes mount the copies, because a sandbox can see the host path of a mounted file.

        Where the runtime supports it, the copy of a program is executable but not readable. Other processes in a
        sandbox then cannot trace a process that runs this program, such as the sandbox's first process. They also
        cannot open its memory or its open files through ``/proc``. A runtime that enters the sandbox can do all this,
        because it has all capabilities in the user namespace.
        """
        directory = f"{self.run}/{SHOWN}"
        os.mkdir(directory)
        mounts.mount_tmpfs(directory, "711")
        for name, source in files.items():
            with open(source, "rb") as original, open(f"{directory}/{name}", "wb") as copy:
                copy.write(original.read())
                if not os.access(source, os.X_OK):
                    os.fchmod(copy.fileno(), 0o644)
                elif not self.settings.unreadable:
                    os.fchmod(copy.fileno(), 0o755)
                else:
                    os.fchown(copy.fileno(), self.settings.owner, self.settings.owner)
                    os.fchmod(copy.fileno(), 0o111)
        mounts.make_read_only(directory)

    def _make_groups(self) -> None:
        try:
            for hierarchy in self.hierarchies:
                hierarchy.make_parent(self.group)
        except OSError:  # a group cannot be created: continue without cgroups, and report no controllers
            self._remove_groups()
            self.hierarchies = []

    def _remove_groups(self) -> bool:
        gone = [cgroups.remove_group(hierarchy.directory(self.group)) for hierarchy in self.hierarchies]
        return all(gone)

    def _hide_hybrid(self) -> None:
        """Cover an unused cgroup2 mount of a hybrid setup: crun refuses to work with both versions."""
        if not any(hierarchy.unified for hierarchy in self.hierarchies):
            for mount_point in cgroups.hybrid_mounts():
                mounts.mount_tmpfs(mount_point, "755")


SHOWN = "shown"
"""The directory, in the supervisor's directory, of the files that are mounted in every sandbox."""

OWNER_FILE = "owner"
"""The name of the file, in the supervisor's directory, that contains the label of the driver's process."""


def _sealed_copy(path: str) -> int | None:
    try:
        with open(path, "rb") as file:
            is_script = file.read(2) == b"#!"
        # The interpreter of a script would open the script through a descriptor that is closed by then.
        return None if is_script else sealed_copy(path)
    except OSError:  # an administrator may forbid programs in memory; the runtime then protects itself
        return None


def _read(path: str) -> str:
    with open(path) as file:
        return file.read()
