"""Checks of the kernel: namespaces, ids, limits, system call filters, overlays."""

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
"""Settings that can forbid user namespaces: name, forbidding value, allowing value."""


def user_namespaces(machine: Machine) -> Finding:
    """Check for user namespaces by creating one.

    The kernel's settings alone do not show whether this works: a container around this process may forbid it.
    """
    name = "user_namespaces"
    if machine.succeeds(("unshare", "--user", "--map-root-user", "true")):
        return Finding(name, State.OK, "available", "root in a sandbox is not root on this machine")
    meaning = "the oci driver cannot work"
    for setting, forbids, allows in _USER_NAMESPACE_SWITCHES:
        value = machine.read(f"/proc/sys/{setting.replace('.', '/')}")
        if value is not None and value.strip() == forbids:
            fix = as_root(machine, f"sysctl -w {setting}={allows}")
            return Finding(name, State.MISSING, f"forbidden by {setting}={forbids}", meaning, fix)
    return Finding(name, State.MISSING, "refused by the kernel or by a container around this process", meaning)


def rootless_ids(machine: Machine) -> Finding:
    """Check for subordinate ids. Without them, a sandbox of an ordinary user has only one user id."""
    name, meaning = "rootless_ids", "a sandbox has only one user id, and keeps your groups"
    if machine.is_root:
        return Finding(name, State.OK, "not needed by root", "a sandbox has several user ids")
    if not (machine.has("newuidmap") and machine.has("newgidmap")):
        return Finding(name, State.WEAKER, "no newuidmap or no newgidmap", meaning, install(machine, "uidmap"))
    least = min(_subordinate(machine, path) for path in ("/etc/subuid", "/etc/subgid"))
    if least >= _SUBORDINATE:
        return Finding(name, State.OK, f"{least} subordinate ids", "a sandbox has several user ids")
    ids = "--add-subuids 100000-165535 --add-subgids 100000-165535"
    fix = as_root(machine, f"usermod {ids} {machine.user}")
    return Finding(name, State.WEAKER, f"{least} of {_SUBORDINATE} subordinate ids", meaning, fix)


def cgroups(machine: Machine) -> Finding:
    """Check which limits can be set for a sandbox as a whole."""
    layout, usable = machine.cgroups()
    lacking = [name for name in _CONTROLLERS if name not in usable]
    found = f"{layout or 'none'}; can limit {', '.join(usable) or 'nothing'}"
    if not lacking:
        return Finding("cgroups", State.OK, found, "all limits of a sandbox are enforced")
    meaning = f"the oci driver has no cgroup to limit {', '.join(lacking)} for a sandbox as a whole"
    if machine.is_root:
        fix = "" if layout else "mount -t cgroup2 none /sys/fs/cgroup"
    else:
        fix = "systemd-run --user --scope -p Delegate=yes $SHELL, or run as root"
    return Finding("cgroups", State.WEAKER if layout else State.MISSING, found, meaning, fix)


def seccomp(machine: Machine) -> Finding:
    """Check for system call filters in the kernel, and for libseccomp."""
    if machine.read("/proc/sys/kernel/seccomp/actions_avail") is None:
        return Finding("seccomp", State.MISSING, "not supported by the kernel", "system calls are not filtered")
    version = machine.libseccomp()
    return Finding("seccomp", State.OK, f"libseccomp {version}", "system calls are filtered")


def overlay(machine: Machine) -> Finding:
    """Check for overlayfs: it gives each sandbox a writable layer of its own over a shared image."""
    meaning = "the oci driver cannot use images"
    if "overlay" not in (machine.read("/proc/filesystems") or "").split():
        fix = as_root(machine, "modprobe overlay")
        return Finding("overlay", State.MISSING, "not supported by the kernel", meaning, fix)
    if not machine.is_root and machine.kernel < _OVERLAY_FOR_USERS:
        found = f"kernel {'.'.join(map(str, machine.kernel))} allows it only for root; 5.11 allows it for all users"
        return Finding("overlay", State.MISSING, found, meaning, "run as root")
    return Finding(
        "overlay", State.OK, "available", "sandboxes share one unpacked image, each with its own writable layer"
    )


def _subordinate(machine: Machine, path: str) -> int:
    """Return how many ids a file such as ``/etc/subuid`` assigns to this user."""
    lines = [line.split(":") for line in (machine.read(path) or "").splitlines()]
    return sum(int(line[2]) for line in lines if len(line) == 3 and line[0] == machine.user and line[2].isdecimal())  # noqa: PLR2004 - name:first:count
