"""How mmdebstrap is run (by root, with sudo, or by an ordinary user), and how it is installed on request."""

from __future__ import annotations

import getpass
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fake_programs import FakePrograms, only_these_programs
from securebench.errors import ImageError
from securebench.images.build.bootstrap import AS_USER, Bootstrap, as_root, find_bootstrap

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakePrograms:
    """Return an empty PATH, to which tests add programs."""
    return only_these_programs(tmp_path, monkeypatch)


@pytest.fixture
def by_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate an ordinary user."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)


@pytest.fixture
def by_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate root."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)


def _find(subuid: Path, *, install_tools: bool = False) -> Bootstrap:
    return find_bootstrap(lambda _stage: None, install_tools=install_tools, subuid=subuid)


def test_root_runs_it_in_namespaces_that_end_with_it(programs: FakePrograms, by_root: None, tmp_path: Path) -> None:
    """Root needs no program except ``mmdebstrap``, and runs it in separate namespaces."""
    programs.add("mmdebstrap")
    assert _find(tmp_path / "none") == as_root()


def test_a_user_with_sudo_runs_it_through_sudo(programs: FakePrograms, by_user: None, tmp_path: Path) -> None:
    """A user whose sudo needs no password runs ``mmdebstrap`` with sudo."""
    programs.add("mmdebstrap")
    programs.add("sudo")
    assert _find(tmp_path / "none") == as_root(("sudo", "-n"))


@pytest.mark.parametrize("owner", [getpass.getuser(), str(os.getuid())])
def test_a_user_with_subordinate_ids_needs_no_root(
    programs: FakePrograms, by_user: None, tmp_path: Path, owner: str
) -> None:
    """With newuidmap and an entry in /etc/subuid, by name or number, a user runs ``mmdebstrap`` without sudo."""
    programs.add("mmdebstrap")
    programs.add("newuidmap")
    programs.add("sudo", "exit 1")
    (tmp_path / "subuid").write_text(f"someone:1:2\n{owner}:100000:65536\n")
    assert _find(tmp_path / "subuid") is AS_USER


def test_a_user_with_fakechroot_needs_no_root(programs: FakePrograms, by_user: None, tmp_path: Path) -> None:
    """With fakechroot, a user needs neither sudo nor subordinate ids."""
    programs.add("mmdebstrap")
    programs.add("fakechroot")
    assert _find(tmp_path / "none") is AS_USER


@pytest.mark.parametrize("with_newuidmap", [True, False])
def test_a_user_without_any_means_learns_what_to_install(
    programs: FakePrograms, by_user: None, tmp_path: Path, *, with_newuidmap: bool
) -> None:
    """Without sudo and subordinate ids, the error names the package to install and other ways to get the image."""
    programs.add("mmdebstrap")
    if with_newuidmap:
        programs.add("newuidmap")
    with pytest.raises(ImageError, match=r"apt-get install uidmap.*import the image") as caught:
        _find(tmp_path / "none")
    assert caught.value.code == "image-tool-missing"


@pytest.mark.parametrize("install_tools", [True, False])
def test_a_missing_program_is_named_where_it_cannot_or_may_not_be_installed(
    programs: FakePrograms, by_root: None, tmp_path: Path, *, install_tools: bool
) -> None:
    """Without ``install_tools`` or without apt-get, nothing is installed, and the error names the package."""
    if not install_tools:
        programs.add("apt-get")
    with pytest.raises(ImageError, match="apt-get install mmdebstrap") as caught:
        _find(tmp_path / "none", install_tools=install_tools)
    assert caught.value.code == "image-tool-missing"
    assert programs.called() == []


def test_a_missing_program_is_installed_when_that_is_asked_for(
    programs: FakePrograms, by_root: None, tmp_path: Path
) -> None:
    """apt-get first updates the package lists, which a fresh machine lacks; then it installs without a prompt."""
    programs.add("apt-get")
    programs.borrow("env", "sh")
    assert _find(tmp_path / "none", install_tools=True) == as_root()
    assert programs.called() == [
        "apt-get -qq update",
        "apt-get -qq install --yes --no-install-recommends mmdebstrap debian-archive-keyring",
    ]


def test_a_user_installs_through_sudo(programs: FakePrograms, by_user: None, tmp_path: Path) -> None:
    """An ordinary user installs ``mmdebstrap`` with sudo."""
    programs.add("apt-get")
    programs.borrow("env", "sh")
    programs.add("sudo", 'shift; exec "$@"')
    programs.add("true")
    assert _find(tmp_path / "none", install_tools=True) == as_root(("sudo", "-n"))
    assert "sudo -n env DEBIAN_FRONTEND=noninteractive apt-get -qq update" in programs.called()


def test_what_apt_says_is_told_when_it_fails(programs: FakePrograms, by_root: None, tmp_path: Path) -> None:
    """If apt-get cannot install ``mmdebstrap``, the error contains apt-get's message."""
    programs.add("apt-get", "echo 'E: no mirror answers' >&2; exit 100")
    programs.borrow("env", "sh")
    with pytest.raises(ImageError, match="E: no mirror answers"):
        _find(tmp_path / "none", install_tools=True)


@pytest.mark.skipif(os.getuid() != 0, reason="making these namespaces needs root")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_what_root_starts_ends_with_the_build_however_that_ends(number: signal.Signals) -> None:
    """L25: when a build is killed, all processes that it started end, too, including children of its children."""
    # The Python process stands for the build. Its descendants are found in this machine's /proc: inside their pid
    # namespace, they have other process ids.
    child = "sleep 300 & setsid sleep 301 & wait"
    code = f"import subprocess; subprocess.run({[*as_root().prefix, 'sh', '-c', child]!r})"
    build = subprocess.Popen([sys.executable, "-c", code])
    try:
        _until(lambda: len(_sleepers(build.pid)) == 2)
        sleepers = _sleepers(build.pid)
        build.send_signal(number)
        build.wait()
        _until(lambda: not any(_stat(pid)[0] for pid in sleepers))
    finally:
        build.kill()
        build.wait()


def _sleepers(ancestor: int) -> list[int]:
    parents = {pid: _stat(pid) for pid in _pids()}
    found = []
    for pid, (name, parent) in parents.items():
        above = parent
        while above > 1 and above != ancestor:
            above = parents.get(above, ("", 0))[1]
        if name == "sleep" and above == ancestor:
            found.append(pid)
    return found


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _stat(pid: int) -> tuple[str, int]:
    """Return the name and the parent's id of a process, or an empty name and 0 if it has ended or is a zombie."""
    try:
        name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
    except OSError:
        return "", 0
    state, parent = rest.split()[:2]
    return ("", 0) if state == "Z" else (name, int(parent))


def _until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.02)
