"""What the kernel gives to this user: namespaces, ids, limits, filters, overlays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from securebench.doctor.fixes import as_root, install
from securebench.doctor.model import Finding, State

if TYPE_CHECKING:
    from securebench.doctor.model import Machine

_CONTROLLERS: Final = ("memory", "pids", "cpu")
_SUBORDINATE: Final = 65536
_OVERLAY_FOR_USERS: Final = (5, 11)
_USER_NAMESPACE_SWITCHES: Final = (
    ("user.max_user_namespaces", "0", "15000"),
    ("kernel.unprivileged_userns_clone", "0", "1"),
    ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
)
"""Settings that forbid user namespaces to some or all: the value that forbids, and one that does not."""


def user_namespaces(machine: Machine) -> Finding:
    """Try one: no setting says it all, and a container around this process may forbid it, too."""
    name = "user_namespaces"
    if machine.succeeds(("unshare", "--user", "--map-root-user", "true")):
        return Finding(name, State.OK, "can be made", "no user of a sandbox is one that matters here")
    meaning = "the oci driver cannot work"
    for setting, forbids, allows in _USER_NAMESPACE_SWITCHES:
        value = machine.read(f"/proc/sys/{setting.replace('.', '/')}")
        if value is not None and value.strip() == forbids:
            fix = as_root(machine, f"sysctl -w {setting}={allows}")
            return Finding(name, State.MISSING, f"forbidden by {setting}={forbids}", meaning, fix)
    return Finding(name, State.MISSING, "refused: by the kernel, or by a container around this", meaning)


def rootless_ids(machine: Machine) -> Finding:
    """Look for the subordinate ids that an ordinary user's sandboxes need for more than one user."""
    name, meaning = "rootless_ids", "an image's files all have one owner, and groups of this user are kept"
    if machine.is_root:
        return Finding(name, State.OK, "not needed by root", "sandboxes have 65536 ids that nobody here has")
    if not (machine.has("newuidmap") and machine.has("newgidmap")):
        return Finding(name, State.WEAKER, "no newuidmap", meaning, install(machine, "uidmap"))
    least = min(_subordinate(machine, path) for path in ("/etc/subuid", "/etc/subgid"))
    if least >= _SUBORDINATE:
        return Finding(name, State.OK, f"{least} subordinate ids", "sandboxes have users of their own")
    ids = "--add-subuids 100000-165535 --add-subgids 100000-165535"
    fix = as_root(machine, f"usermod {ids} {machine.user}")
    return Finding(name, State.WEAKER, f"{least} subordinate ids of {_SUBORDINATE}", meaning, fix)


def cgroups(machine: Machine) -> Finding:
    """Say which limits can be set for a sandbox as a whole."""
    layout, usable = machine.cgroups()
    lacking = [name for name in _CONTROLLERS if name not in usable]
    found = f"{layout or 'none'}; limits of {', '.join(usable) or 'nothing'}"
    if not lacking:
        return Finding("cgroups", State.OK, found, "a sandbox cannot take more than its share")
    meaning = f"the oci driver cannot limit a sandbox's {', '.join(lacking)} as a whole, only each process's"
    if machine.is_root:
        fix = "" if layout else "mount -t cgroup2 none /sys/fs/cgroup"
    else:
        fix = "systemd-run --user --scope -p Delegate=yes $SHELL, or run as root"
    return Finding("cgroups", State.WEAKER if layout else State.MISSING, found, meaning, fix)


def seccomp(machine: Machine) -> Finding:
    """Look for the kernel's filters, and for the library that writes them."""
    if machine.read("/proc/sys/kernel/seccomp/actions_avail") is None:
        return Finding("seccomp", State.MISSING, "the kernel has no filters", "system calls are not filtered")
    version = machine.libseccomp()
    return Finding("seccomp", State.OK, f"libseccomp {version}", "system calls are filtered, compiled once")


def overlay(machine: Machine) -> Finding:
    """Look for the file system that lets sandboxes share an image and write, each for itself."""
    meaning = "the oci driver cannot give a sandbox an image"
    if "overlay" not in (machine.read("/proc/filesystems") or "").split():
        fix = as_root(machine, "modprobe overlay")
        return Finding("overlay", State.MISSING, "not known to the kernel", meaning, fix)
    if not machine.is_root and machine.kernel < _OVERLAY_FOR_USERS:
        found = f"kernel {'.'.join(map(str, machine.kernel))} has it for root alone; 5.11 or later has it for all"
        return Finding("overlay", State.MISSING, found, meaning, "run as root")
    return Finding("overlay", State.OK, "there", "sandboxes share an image, and write each for itself")


def _subordinate(machine: Machine, path: str) -> int:
    """Return how many ids a file such as ``/etc/subuid`` gives to this user."""
    lines = [line.split(":") for line in (machine.read(path) or "").splitlines()]
    return sum(int(line[2]) for line in lines if len(line) == 3 and line[0] == machine.user and line[2].isdecimal())  # noqa: PLR2004 - name:first:count
