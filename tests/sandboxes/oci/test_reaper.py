"""L10: run directories, temporary directories and cgroups: who owns them, and which are removed."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from securebench.errors import EngineError
from securebench.sandboxes.oci import reaper
from securebench.sandboxes.oci.reaper import make_run_directory, reap, runs_directory, temporary_directory
from securebench.sandboxes.owner import Owner

HERE = Owner.current()


@pytest.fixture
def dead() -> Owner:
    """Return an owner whose process has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return replace(HERE, pid=process.pid, start="1")


def owned(parent: Path, name: str, owner: Owner | str) -> Path:
    """Create a run directory whose owner file names ``owner``."""
    run = parent / name
    run.mkdir(parents=True)
    (run / "owner").write_text(owner if isinstance(owner, str) else owner.label())
    return run


def test_a_run_directory_says_whose_it_is(tmp_path: Path) -> None:
    """A run directory and its cgroup name identify this process. Other users may only traverse the directory."""
    run, group = make_run_directory("token", tmp_path / "runs")
    assert (run / "owner").read_text() == HERE.label()
    assert reaper._owner_of(Path("/any") / group) == HERE
    assert group.startswith("token.")
    assert stat.S_IMODE(run.stat().st_mode) == 0o711
    assert [path.name for path in run.parent.iterdir()] == ["token"]


@pytest.mark.parametrize("trap", ["link", "writable", "file"])
def test_a_place_that_is_not_ours_is_refused(tmp_path: Path, trap: str) -> None:
    """A parent directory that is a link, a file or writable for other users is refused."""
    parent = tmp_path / "runs"
    if trap == "link":
        (tmp_path / "elsewhere").mkdir()
        parent.symlink_to(tmp_path / "elsewhere")
    elif trap == "writable":
        parent.mkdir()
        parent.chmod(0o777)
    else:
        parent.touch()
    with pytest.raises(EngineError) as raised:
        make_run_directory("token", parent)
    assert raised.value.code == "sandbox-unavailable"


def test_what_the_dead_left_is_removed(tmp_path: Path, dead: Owner) -> None:
    """The run directory of a process that has ended, or that ran before this boot, is removed with its content."""
    (owned(tmp_path, "dead", dead) / "state").mkdir()
    owned(tmp_path, "before", replace(HERE, boot="another"))
    assert reap(tmp_path) >= 2
    assert list(tmp_path.iterdir()) == []


def test_what_may_live_is_left(tmp_path: Path) -> None:
    """Run directories of this process, another pid namespace or an unknown owner, and targets of links, are kept."""
    owned(tmp_path, "mine", HERE)
    owned(tmp_path, "elsewhere", replace(HERE, namespace="1"))
    owned(tmp_path, "garbled", "nobody")
    (tmp_path / "unowned").mkdir()
    (tmp_path / "link").symlink_to(owned(tmp_path / "other", "dead", replace(HERE, boot="another")))
    before = sorted(tmp_path.rglob("*"))
    reap(tmp_path)
    assert sorted(tmp_path.rglob("*")) == before


KILLED = """
import os, signal
from securebench.sandboxes.oci.isolation import host_root
with host_root() as (root, _):
    print(root, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_temporary_directory_of_the_dead_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The temporary directory of a killed process is removed. Those of live processes or with other names are kept."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(reaper, "find_group_directories", list)
    killed = subprocess.run([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True, check=False)
    root = Path(killed.stdout.strip())
    assert root.is_dir()
    assert root.parent == tmp_path
    other = tmp_path / f"other{root.suffix}"
    other.mkdir()
    with temporary_directory() as own:
        assert reap(tmp_path / "none") == 0
        assert sorted(tmp_path.iterdir()) == sorted([own, other])
    assert list(tmp_path.iterdir()) == [other]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_temporary_directory_of_another_user_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user's temporary directory is kept, because any user may create a directory with such a name."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    foreign = tmp_path / f"securebench-root-x.{replace(HERE, boot='another').label().replace('/', '.')}"
    foreign.mkdir()
    os.chown(foreign, 65534, 65534)
    reap(tmp_path / "none")
    assert foreign.is_dir()
    os.chown(foreign, 0, 0)
    reap(tmp_path / "none")
    assert not foreign.exists()


def test_cgroups_of_the_dead_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dead: Owner) -> None:
    """A cgroup whose name contains a dead owner is removed with all cgroups below it. Other cgroups are kept."""
    groups = tmp_path / "securebench"
    name, ours = (f"token.{owner.label().replace('/', '.')}" for owner in (dead, HERE))
    (groups / name / "s1" / "runtime").mkdir(parents=True)
    (groups / ours / "s1").mkdir(parents=True)
    (groups / "foreign").mkdir()
    monkeypatch.setattr(reaper, "find_group_directories", lambda: [str(tmp_path)])
    assert reap(tmp_path / "none") == 1
    assert sorted(path.name for path in groups.iterdir()) == sorted([ours, "foreign"])


def test_a_process_in_a_dead_cgroup_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dead: Owner) -> None:
    """A process that still runs in the cgroup of a dead owner is killed."""
    group = tmp_path / "securebench" / f"token.{dead.label().replace('/', '.')}"
    group.mkdir(parents=True)
    process = subprocess.Popen(["sleep", "60"])
    (group / "cgroup.procs").write_text(f"{process.pid}\n")
    monkeypatch.setattr(reaper, "find_group_directories", lambda: [str(tmp_path)])
    monkeypatch.setattr(reaper, "_REMOVAL_SECONDS", 0.1)  # this is no real cgroup: its file prevents its removal
    reap(tmp_path / "none")
    assert process.wait(10) == -9


@pytest.mark.skipif(os.geteuid() == 0, reason="root has one place")
def test_an_ordinary_user_has_a_place_of_his_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run directories are in ``XDG_RUNTIME_DIR`` or, if it is not absolute, in a directory named after the user id."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert runs_directory() == tmp_path / "securebench"
    monkeypatch.setenv("XDG_RUNTIME_DIR", "not absolute")
    assert str(os.getuid()) in runs_directory().name
