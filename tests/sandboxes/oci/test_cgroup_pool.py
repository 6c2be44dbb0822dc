"""The cgroup pool: a group is reused only if it has no process and almost no memory is charged to it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from securebench.sandboxes.base import MIB, Command, Limits, SandboxSpec
from securebench.sandboxes.oci import OciDriver
from securebench.sandboxes.oci.supervisor import cgroup_pool as module
from securebench.sandboxes.oci.supervisor.cgroup_pool import CgroupPool
from securebench.sandboxes.oci.supervisor.cgroups import Group, Hierarchy
from securebench.sandboxes.oci.wire import SupervisorSettings

if TYPE_CHECKING:
    from securebench.images.model import ResolvedImage

OOM = "import sys\nblocks = [bytearray(1 << 20) for _ in range(1 << 10)]"
FORK = "import os, signal\nfor _ in range(24): os.fork() or signal.pause()\n"


class FakeGroup:
    """A fake group. It records whether it was removed."""

    def __init__(self, *, as_new: bool) -> None:
        self.as_new = as_new
        self.removed = False

    def is_as_new(self) -> bool:
        """Return the value that the constructor got."""
        return self.as_new

    def reset_peak(self) -> None:
        """Do nothing."""

    def remove(self) -> bool:
        """Record the removal."""
        self.removed = True
        return True


def group(*, as_new: bool = True) -> Group:
    """Return a fake group, typed as a real one."""
    return cast("Group", FakeGroup(as_new=as_new))


class Around:
    """A stand-in for the supervisor's context, with what a pool needs to create groups."""

    settings = SupervisorSettings(run="/run", group="run")
    hierarchies = (object(),)
    group = "run"


def pool_of(monkeypatch: pytest.MonkeyPatch) -> tuple[CgroupPool, list[Group]]:
    """Return a pool that starts no processes, and the list of groups in which it would have started one."""
    used: list[Group] = []

    def make(of: Group) -> Any:
        used.append(of)
        return type("Spare", (), {"group": of})()

    monkeypatch.setattr(module, "PooledCgroup", make)
    monkeypatch.setattr(module, "Group", lambda *_, **__: group())
    return CgroupPool(cast("Any", Around())), used


def test_a_group_that_is_as_new_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refill starts waiting processes in the kept groups first, and then in new groups."""
    cgroup_pool, used = pool_of(monkeypatch)
    kept = group()
    assert cgroup_pool.keep(kept)
    cgroup_pool.refill()
    assert used[0] is kept
    assert used[1] is not kept


def test_a_group_that_is_not_as_new_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A24, F11: a group in which a sandbox left processes or memory is not kept for another sandbox."""
    cgroup_pool, used = pool_of(monkeypatch)
    dirty = group(as_new=False)
    assert not cgroup_pool.keep(dirty)
    cgroup_pool.refill()
    assert dirty not in used


def test_few_groups_are_kept_and_none_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most eight groups are kept, and ``remove`` removes all of them."""
    cgroup_pool, _ = pool_of(monkeypatch)
    groups = [group() for _ in range(9)]
    assert [cgroup_pool.keep(one) for one in groups] == [True] * 8 + [False]
    cgroup_pool.remove()
    assert [cast("FakeGroup", one).removed for one in groups] == [True] * 8 + [False]


@pytest.mark.parametrize(
    ("processes", "used", "as_new"),
    [("", 8 * MIB, True), ("", 8 * MIB + 1, False), ("7\n", 0, False)],
    ids=["empty", "memory is charged", "a process is left"],
)
@pytest.mark.parametrize("unified", [False, True], ids=["v1", "v2"])
def test_what_as_new_is(tmp_path: Path, processes: str, used: int, as_new: bool, unified: bool) -> None:
    """A group is as new if it has no process and at most 8 MiB of memory are charged to it."""
    hierarchy = Hierarchy(str(tmp_path), ("memory",), unified=unified)
    (tmp_path / "securebench").mkdir()
    made = Group([hierarchy], "spare-1", inner=False)
    directory = Path(hierarchy.directory("spare-1"))
    (directory / "cgroup.procs").write_text(processes)
    (directory / f"memory.{'current' if unified else 'usage_in_bytes'}").write_text(f"{used}\n")
    assert made.is_as_new() is as_new


@pytest.mark.oci
def test_what_came_before_is_not_felt(oci_driver: OciDriver, base_image: ResolvedImage) -> None:
    """A24, F11: each sandbox can use the memory and the processes that its own limits allow, and no more.

    Sandboxes that use up small limits alternate with sandboxes that use more than these limits.
    """
    del oci_driver, base_image  # only requested so that they exist before the check for leftovers starts
    with closing(OciDriver()) as driver:
        image = driver.resolve_image("securebench/python:3.11")
        if not {"memory", "pids"}.isdisjoint(driver.info().weaker):
            pytest.skip("there are no groups to be used again: this driver says that it does not limit them")
        for _ in range(6):
            with driver.create(SandboxSpec(image=image, limits=Limits(pids=16))) as sandbox:
                refused = sandbox.run(Command(argv=("python3", "-c", FORK), timeout_seconds=60))
                assert b"BlockingIOError" in refused.stderr
            with driver.create(SandboxSpec(image=image, limits=Limits(memory=64 * MIB))) as sandbox:
                assert sandbox.run(Command(argv=("python3", "-c", OOM), timeout_seconds=60)).out_of_memory
            with driver.create(SandboxSpec(image=image)) as sandbox:
                argv = ("python3", "-c", f"{FORK}b = bytearray(256 << 20)")
                result = sandbox.run(Command(argv=argv, timeout_seconds=60))
            assert (result.exit_code, result.out_of_memory) == (0, False)
