"""The checks of the kernel, in each state: what is found, what it means, and how to fix it."""

from __future__ import annotations

import pytest

from fake_machine import FILES, PROGRAMS, FakeMachine
from securebench.doctor import State
from securebench.doctor.kernel_checks import cgroups, overlay, rootless_ids, seccomp, user_namespaces
from securebench.errors import EngineError


def test_user_namespaces_that_can_be_made_are_fine() -> None:
    """User namespaces are reported as OK if one can be created."""
    assert user_namespaces(FakeMachine()).state is State.OK


@pytest.mark.parametrize(
    ("setting", "forbids", "command"),
    [
        ("user.max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=15000"),
        ("kernel.unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1"),
        (
            "kernel.apparmor_restrict_unprivileged_userns",
            "1",
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        ),
    ],
)
def test_the_setting_that_forbids_user_namespaces_is_named(setting: str, forbids: str, command: str) -> None:
    """I18: the fix is a command for the setting that forbids user namespaces. Distributions use different settings."""
    path = f"/proc/sys/{setting.replace('.', '/')}"
    found = user_namespaces(FakeMachine(is_root=False, working=False, files=FILES | {path: f"{forbids}\n"}))
    assert found.state is State.MISSING
    assert found.fix == f"sudo {command}"


def test_user_namespaces_that_are_refused_by_nobody_known_are_told() -> None:
    """If no known setting forbids user namespaces, the finding names a container as a possible cause."""
    found = user_namespaces(FakeMachine(working=False))
    assert found.state is State.MISSING
    assert "container" in found.found


def test_root_needs_no_subordinate_ids() -> None:
    """Root needs neither subordinate ids nor newuidmap."""
    assert rootless_ids(FakeMachine(files={}, programs=frozenset())).state is State.OK


def test_an_ordinary_user_has_subordinate_ids() -> None:
    """An ordinary user needs subordinate ids under their own name in both /etc/subuid and /etc/subgid."""
    assert rootless_ids(FakeMachine(is_root=False)).state is State.OK
    assert rootless_ids(FakeMachine(is_root=False, user="stranger")).state is State.WEAKER
    assert rootless_ids(FakeMachine(is_root=False, files=FILES | {"/etc/subgid": ""})).state is State.WEAKER


@pytest.mark.parametrize("line", ["user:100000:1000", "user:100000", "user:100000:many", "users:1:65536", ""])
def test_too_few_subordinate_ids_are_weaker(line: str) -> None:
    """If a user has too few subordinate ids, the fix is a command that assigns more to this user."""
    found = rootless_ids(FakeMachine(is_root=False, files=FILES | {"/etc/subuid": line}))
    assert found.state is State.WEAKER
    assert found.fix.startswith("sudo usermod --add-subuids")
    assert found.fix.endswith(" user")


def test_subordinate_ids_need_a_program() -> None:
    """Without newuidmap, an ordinary user cannot use subordinate ids, and the fix installs it."""
    found = rootless_ids(FakeMachine(is_root=False, programs=PROGRAMS - {"newuidmap"}))
    assert (found.state, found.fix) == (State.WEAKER, "sudo apt-get install uidmap")


def test_all_limits_are_fine() -> None:
    """If all limits can be set, the finding names the cgroup version and the limits."""
    found = cgroups(FakeMachine())
    assert found.state is State.OK
    assert "v2; can limit memory, pids, cpu" in found.found


def test_limits_that_cannot_be_set_are_named() -> None:
    """I09: the limits that cannot be set are named, and the fix tells the user how to get a delegated cgroup."""
    found = cgroups(FakeMachine(is_root=False, control_groups=("v2", ("pids",))))
    assert found.state is State.WEAKER
    assert "memory, cpu" in found.meaning
    assert "Delegate=yes" in found.fix


def test_no_control_groups_are_missing() -> None:
    """If there are no cgroups, the fix for root is a command that mounts them."""
    found = cgroups(FakeMachine(control_groups=("", ())))
    assert found.state is State.MISSING
    assert "mount" in found.fix


def test_filters_need_a_kernel_and_a_library() -> None:
    """I18: system call filters need support by the kernel, and libseccomp."""
    assert seccomp(FakeMachine()).state is State.OK
    assert seccomp(FakeMachine(files={})).state is State.MISSING
    with pytest.raises(EngineError):  # ``examine`` turns the error into a finding
        seccomp(FakeMachine(library=EngineError("no library")))


def test_overlays_are_looked_for() -> None:
    """If the kernel does not list overlayfs, the fix loads it as a module."""
    assert overlay(FakeMachine()).state is State.OK
    found = overlay(FakeMachine(is_root=False, files={"/proc/filesystems": "nodev\toverlayish\n"}))
    assert (found.state, found.fix) == (State.MISSING, "sudo modprobe overlay")


def test_overlays_of_an_ordinary_user_need_a_newer_kernel() -> None:
    """Only root can use overlayfs with a kernel before 5.11."""
    assert overlay(FakeMachine(kernel=(5, 10, 0))).state is State.OK
    assert overlay(FakeMachine(is_root=False, kernel=(5, 10, 0))).state is State.MISSING
    assert overlay(FakeMachine(is_root=False, kernel=(5, 11))).state is State.OK
