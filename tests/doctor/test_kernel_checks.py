"""What the kernel gives: each state is told, with what it means and what mends it."""

from __future__ import annotations

import pytest

from fake_machine import FILES, PROGRAMS, FakeMachine
from securebench.doctor import State
from securebench.doctor.kernel_checks import cgroups, overlay, rootless_ids, seccomp, user_namespaces
from securebench.errors import EngineError


def test_user_namespaces_that_can_be_made_are_fine() -> None:
    """It is tried: no setting is asked where it works."""
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
    """I18: each distribution has a switch of its own: the one that is off is found, and how to turn it on."""
    path = f"/proc/sys/{setting.replace('.', '/')}"
    found = user_namespaces(FakeMachine(is_root=False, working=False, files=FILES | {path: f"{forbids}\n"}))
    assert found.state is State.MISSING
    assert found.fix == f"sudo {command}"


def test_user_namespaces_that_are_refused_by_nobody_known_are_told() -> None:
    """A container around this process refuses without a setting."""
    found = user_namespaces(FakeMachine(working=False))
    assert found.state is State.MISSING
    assert "container" in found.found


def test_root_needs_no_subordinate_ids() -> None:
    """Root has ids to give."""
    assert rootless_ids(FakeMachine(files={}, programs=frozenset())).state is State.OK


def test_an_ordinary_user_has_subordinate_ids() -> None:
    """Only the user's own lines count, in both files."""
    assert rootless_ids(FakeMachine(is_root=False)).state is State.OK
    assert rootless_ids(FakeMachine(is_root=False, user="stranger")).state is State.WEAKER
    assert rootless_ids(FakeMachine(is_root=False, files=FILES | {"/etc/subgid": ""})).state is State.WEAKER


@pytest.mark.parametrize("line", ["user:100000:1000", "user:100000", "user:100000:many", "users:1:65536", ""])
def test_too_few_subordinate_ids_are_weaker(line: str) -> None:
    """The command gives enough of them to this user."""
    found = rootless_ids(FakeMachine(is_root=False, files=FILES | {"/etc/subuid": line}))
    assert found.state is State.WEAKER
    assert found.fix.startswith("sudo usermod --add-subuids")
    assert found.fix.endswith(" user")


def test_subordinate_ids_need_a_program() -> None:
    """Without newuidmap nobody may use them."""
    found = rootless_ids(FakeMachine(is_root=False, programs=PROGRAMS - {"newuidmap"}))
    assert (found.state, found.fix) == (State.WEAKER, "sudo apt-get install uidmap")


def test_all_limits_are_fine() -> None:
    """The layout is named with what it limits."""
    found = cgroups(FakeMachine())
    assert found.state is State.OK
    assert "v2; can limit memory, pids, cpu" in found.found


def test_limits_that_cannot_be_set_are_named() -> None:
    """I09: what is not limited as a whole is said, with the way to a delegated group."""
    found = cgroups(FakeMachine(is_root=False, control_groups=("v2", ("pids",))))
    assert found.state is State.WEAKER
    assert "memory, cpu" in found.meaning
    assert "Delegate=yes" in found.fix


def test_no_control_groups_are_missing() -> None:
    """A machine without any has a command that mounts them."""
    found = cgroups(FakeMachine(control_groups=("", ())))
    assert found.state is State.MISSING
    assert "mount" in found.fix


def test_filters_need_a_kernel_and_a_library() -> None:
    """I18: both are looked for."""
    assert seccomp(FakeMachine()).state is State.OK
    assert seccomp(FakeMachine(files={})).state is State.MISSING
    with pytest.raises(EngineError):  # the examination makes a finding of it
        seccomp(FakeMachine(library=EngineError("no library")))


def test_overlays_are_looked_for() -> None:
    """A kernel that does not know them yet may have them as a module."""
    assert overlay(FakeMachine()).state is State.OK
    found = overlay(FakeMachine(is_root=False, files={"/proc/filesystems": "nodev\toverlayish\n"}))
    assert (found.state, found.fix) == (State.MISSING, "sudo modprobe overlay")


def test_overlays_of_an_ordinary_user_need_a_newer_kernel() -> None:
    """Before 5.11 only root had them."""
    assert overlay(FakeMachine(kernel=(5, 10, 0))).state is State.OK
    assert overlay(FakeMachine(is_root=False, kernel=(5, 10, 0))).state is State.MISSING
    assert overlay(FakeMachine(is_root=False, kernel=(5, 11))).state is State.OK
