"""Which cgroups a user can use, and what is written to them. The conformance suite tests that limits take effect."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from securebench.sandboxes.oci.supervisor import cgroups
from securebench.sandboxes.oci.supervisor.cgroups import Group, Hierarchy, find_hierarchies

LIMITS = {"memory": 64 * 1024 * 1024, "pids": 32, "cpu": 1.5}


def mountinfo(*mounts: tuple[Path, str, str]) -> str:
    """Return the text of a ``mountinfo`` file. ``mounts`` are mount points with their type and options."""
    lines = [f"36 25 0:31 / {path} rw,relatime shared:9 - {kind} none rw,{options}" for path, kind, options in mounts]
    return "\n".join(lines) + "\n"


def unified(path: Path, controllers: str, handed_on: str = "") -> Path:
    """Create a directory like a version 2 group, with the controllers ``handed_on`` enabled for its children."""
    path.mkdir(parents=True)
    (path / "cgroup.procs").touch()
    (path / "cgroup.controllers").write_text(controllers)
    (path / "cgroup.subtree_control").write_text(handed_on)
    return path


@pytest.fixture(autouse=True)
def _an_ordinary_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decide by file modes what is writable, as for an ordinary user. Otherwise, root could write everything."""
    monkeypatch.setattr(os, "access", lambda path, mode: bool(Path(path).stat().st_mode & 0o200))


def test_version_1_has_a_hierarchy_a_controller(tmp_path: Path) -> None:
    """Version 1: each controller that SecureBench uses is found once. It may share a hierarchy or be mounted twice."""
    for name in ("memory", "cpu,cpuacct", "pids", "devices"):
        (tmp_path / name).mkdir()
    mounts = [(tmp_path / name, "cgroup", name) for name in ("memory", "cpu,cpuacct", "pids", "devices", "memory")]
    found = find_hierarchies(mountinfo(*mounts), "4:memory:/\n")
    assert [(Path(one.path).name, one.controllers, one.unified) for one in found] == [
        ("memory", ("memory",), False),
        ("cpu,cpuacct", ("cpu",), False),
        ("pids", ("pids",), False),
    ]


def test_other_controllers_are_found_for_runtimes_that_use_them(tmp_path: Path) -> None:
    """With ``other_controllers``, hierarchies without a controller that SecureBench uses are found, too."""
    (tmp_path / "devices").mkdir()
    found = find_hierarchies(mountinfo((tmp_path / "devices", "cgroup", "devices")), "", other_controllers=True)
    assert [(one.path, one.controllers) for one in found] == [(str(tmp_path / "devices"), ())]


def test_what_cannot_be_written_is_not_used(tmp_path: Path) -> None:
    """A version 1 hierarchy that this user cannot write to is not used."""
    (tmp_path / "memory").mkdir(mode=0o555)
    assert find_hierarchies(mountinfo((tmp_path / "memory", "cgroup", "memory")), "") == []


def test_version_2_is_used_from_its_root(tmp_path: Path) -> None:
    """Version 2: a user who can write to the root group uses it, and controllers that are not enabled are enabled."""
    root = unified(tmp_path / "cgroup", "cpu io memory pids", "cpu")
    (found,) = find_hierarchies(mountinfo((root, "cgroup2", "")), "0::/\n")
    assert (found.path, found.controllers, found.unified) == (str(root), ("memory", "pids", "cpu"), True)
    assert (root / "cgroup.subtree_control").read_text() == "+memory +pids"


def test_version_2_is_used_where_it_was_delegated(tmp_path: Path) -> None:
    """Version 2: the topmost ancestor of this user's group that the user can write to is used."""
    root = unified(tmp_path / "cgroup", "cpu memory pids")
    for name in ("cgroup.procs", "."):
        (root / name).chmod(0o555 if name == "." else 0o444)
    slice_ = root / "user.slice"
    root.chmod(0o755)
    unified(slice_, "memory pids")
    unified(slice_ / "app", "memory pids")
    root.chmod(0o555)
    (found,) = find_hierarchies(mountinfo((root, "cgroup2", "")), "0::/user.slice/app\n")
    assert (found.path, found.controllers) == (str(slice_), ("memory", "pids"))


def test_nothing_delegated_is_nothing(tmp_path: Path) -> None:
    """Version 2: a group that this user cannot write to, or that has no controllers, is not used."""
    root = unified(tmp_path / "cgroup", "cpu memory pids")
    (root / "cgroup.procs").chmod(0o444)
    assert find_hierarchies(mountinfo((root, "cgroup2", "")), "0::/\n") == []
    hybrid = unified(tmp_path / "unified", "")
    assert find_hierarchies(mountinfo((hybrid, "cgroup2", "")), "0::/\n") == []


def test_a_group_that_holds_processes_is_not_delegated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Version 2: a group is not used if its controllers cannot be enabled, for example because it has processes."""
    root = unified(tmp_path / "cgroup", "cpu memory pids")

    def refuse(path: str, _text: str) -> None:
        raise OSError(16, "Device or resource busy", path)

    monkeypatch.setattr(cgroups, "_write", refuse)
    assert find_hierarchies(mountinfo((root, "cgroup2", "")), "0::/\n") == []


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return a dict that gets each text written to a group's file. The key is the last two parts of the path."""
    found: dict[str, str] = {}
    monkeypatch.setattr(cgroups, "_write", lambda path, text: found.update({"/".join(path.split("/")[-2:]): text}))
    monkeypatch.setattr(os, "access", lambda path, mode: True)
    return found


def test_limits_of_version_1(tmp_path: Path, written: dict[str, str]) -> None:
    """Version 1: memory, processes and CPU time are limited. Memory and swap together have the memory limit."""
    hierarchies = [Hierarchy(str(tmp_path / name), (name,), unified=False) for name in LIMITS]
    for name in LIMITS:
        (tmp_path / name / "securebench").mkdir(parents=True)
    group = Group(hierarchies, "s1", inner=False)
    group.limit(LIMITS)
    group.enter()
    assert written == {
        "s1/memory.limit_in_bytes": "67108864",
        "s1/memory.memsw.limit_in_bytes": "67108864",
        "s1/pids.max": "32",
        "s1/cpu.cfs_period_us": "100000",
        "s1/cpu.cfs_quota_us": "150000",
        "s1/cgroup.procs": "0",
    }


def test_limits_of_version_2(tmp_path: Path, written: dict[str, str]) -> None:
    """Version 2: all limits are written to one group, and swap is forbidden. Kills are read from ``memory.events``."""
    (tmp_path / "securebench").mkdir()
    group = Group([Hierarchy(str(tmp_path), ("memory", "pids", "cpu"), unified=True)], "s1", inner=False)
    group.limit(LIMITS)
    assert written == {
        "s1/memory.max": "67108864",
        "s1/memory.swap.max": "0",
        "s1/pids.max": "32",
        "s1/cpu.max": "150000 100000",
    }
    (tmp_path / "securebench/s1/memory.events").write_text("low 0\noom 3\noom_kill 2\noom_group_kill 0\n")
    assert group.out_of_memory_kills() == 2
    assert group.kills_at_limit() == 3


@pytest.mark.parametrize("memsw", [True, False])
def test_version_1_tells_own_kills_by_how_much_was_used_at_most(tmp_path: Path, *, memsw: bool) -> None:
    """Version 1: kills are attributed to a group's own limit only if its peak usage came close to that limit."""
    (tmp_path / "securebench").mkdir()
    group = Group([Hierarchy(str(tmp_path), ("memory",), unified=False)], "s1", inner=False)
    directory = tmp_path / "securebench/s1"
    (directory / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    kind = "memory.memsw." if memsw else "memory."
    for other in ("memory.", kind):
        (directory / f"{other}limit_in_bytes").write_text("67108864\n")
        (directory / f"{other}max_usage_in_bytes").write_text("9000000\n")
    assert (group.out_of_memory_kills(), group.kills_at_limit()) == (2, 0)
    (directory / f"{kind}max_usage_in_bytes").write_text("67104768\n")  # a page below the limit: a larger charge failed
    assert (group.out_of_memory_kills(), group.kills_at_limit()) == (2, 2)
    group.reset_peak()
    assert group.kills_at_limit() == 0


def test_a_group_that_cannot_be_made_is_not_left(tmp_path: Path) -> None:
    """If creating the group fails in one hierarchy, it is removed from the others, and the error is raised."""
    (tmp_path / "one/securebench").mkdir(parents=True)
    hierarchies = [Hierarchy(str(tmp_path / name), ("pids",), unified=True) for name in ("one", "two")]
    with pytest.raises(OSError, match="two"):
        Group(hierarchies, "s1", inner=False)
    assert list((tmp_path / "one/securebench").iterdir()) == []


def test_a_runtime_with_groups_of_its_own_is_not_put_into_ours(tmp_path: Path, written: dict[str, str]) -> None:
    """A runtime that creates an inner group is not moved into the outer one. Both are removed together."""
    (tmp_path / "securebench").mkdir()
    group = Group([Hierarchy(str(tmp_path), ("pids",), unified=True)], "s1", inner=True)
    group.enter()
    assert "s1/cgroup.procs" not in written
    (tmp_path / "securebench/s1/runtime").mkdir()
    assert group.remove()
    assert list((tmp_path / "securebench").iterdir()) == []
