"""``setup_env.sh`` creates the Python environment from a list of locked requirements, but only if necessary.

On Debian, it first installs parts of Python that are missing.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from fake_programs import FakePrograms, only_these_programs

ROOT = Path(__file__).resolve().parents[2]

PYTHON = """\
case "$*" in
  *version_info\\ \\<*) exit {too_old} ;;
  *'import ensurepip'*) test -e "{machine}/ensurepip" ;;
  *version_info\\[*) echo 3.11 ;;
  --version) echo Python 3.11.9 ;;
  '-m venv .venv') mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
  *'pip install'*) test ! -e "{machine}/no-network" ;;
esac
"""
"""A fake Python. It answers the script's questions and creates an environment by copying itself."""

INSTALL = "-m pip install --quiet --disable-pip-version-check"


@dataclass(frozen=True, slots=True)
class Machine:
    """A clone of the project on a machine with a fake Python and only a few real programs."""

    clone: Path
    directory: Path
    programs: FakePrograms

    def run(self, kind: str = "runtime") -> subprocess.CompletedProcess[str]:
        """Delete the recorded calls, and run the script."""
        self.programs.calls.unlink(missing_ok=True)
        return subprocess.run(
            [self.clone / "scripts" / "setup_env.sh", kind], check=False, capture_output=True, text=True, cwd="/"
        )

    def installed(self) -> list[str]:
        """Return what pip was asked to install."""
        return [call.split(INSTALL, 1)[1].strip() for call in self.programs.called() if INSTALL in call]

    def add_python(self, *, too_old: int = 0) -> None:
        """Put a fake python3 on PATH. With ``too_old=1``, its version is too old."""
        self.programs.add("python3", PYTHON.format(machine=self.directory, too_old=too_old))


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Return a fresh clone on a machine with a complete Python."""
    monkeypatch.delenv("PYTHON", raising=False)
    clone = tmp_path / "a clone"
    for name in ("scripts", "requirements"):
        shutil.copytree(ROOT / name, clone / name)
    (clone / "pyproject.toml").write_text("[project]\n")
    programs = only_these_programs(tmp_path, monkeypatch)
    programs.borrow("bash", "env", "sh", "cat", "cp", "dirname", "id", "mkdir", "rm", "sha256sum", "touch")
    (tmp_path / "ensurepip").touch()
    machine = Machine(clone, tmp_path, programs)
    machine.add_python()
    return machine


def test_a_fresh_clone_gets_an_environment_from_the_lock(machine: Machine) -> None:
    """The locked packages are installed by hash, then the project. pip resolves no dependencies."""
    done = machine.run()
    assert done.returncode == 0, done.stderr
    assert machine.installed() == [
        "--no-deps --require-hashes -r requirements/runtime.txt",
        "--no-deps --no-build-isolation --editable .",
    ]
    assert (machine.clone / ".venv" / "bin" / "python").exists()


def test_the_locks_list_all_packages_that_others_need() -> None:
    """``pip check`` finds no missing package. An installation from a lock does not check this: it resolves nothing."""
    argv = [sys.executable, "-m", "pip", "check"]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout


def test_a_second_run_does_nothing(machine: Machine) -> None:
    """A second run installs nothing and creates no environment."""
    machine.run()
    done = machine.run()
    assert (done.returncode, done.stderr, machine.installed()) == (0, "", [])
    assert not [call for call in machine.programs.called() if "venv" in call]


@pytest.mark.parametrize("name", ["requirements/runtime.txt", "pyproject.toml"])
def test_a_change_of_what_it_is_made_from_installs_again(machine: Machine, name: str) -> None:
    """If the lock or the project file changes, the packages are installed again into the same environment."""
    machine.run()
    path = machine.clone / name
    path.write_text(path.read_text() + "\n# changed\n")
    assert machine.run().returncode == 0
    assert len(machine.installed()) == 2
    assert not [call for call in machine.programs.called() if "-m venv" in call]


def test_the_developers_environment_will_do_for_a_run_but_not_the_other_way(machine: Machine) -> None:
    """A ``dev`` environment is enough for ``runtime``, because the ``dev`` lock includes all ``runtime`` packages.

    A ``runtime`` environment is not enough for ``dev``.
    """
    machine.run("dev")
    assert machine.installed()[0] == "--no-deps --require-hashes -r requirements/dev.txt"
    machine.run("runtime")
    assert machine.installed() == []
    shutil.rmtree(machine.clone / ".venv")
    machine.run("runtime")
    machine.run("dev")
    assert len(machine.installed()) == 2


def test_an_environment_whose_python_is_gone_is_made_anew(machine: Machine) -> None:
    """If the environment's Python does not work, as after a system upgrade, the environment is created again."""
    machine.run()
    (machine.clone / ".venv" / "bin" / "python").write_text("#!/no/such/python\n")
    (machine.clone / ".venv" / "old").touch()
    assert machine.run().returncode == 0
    assert not (machine.clone / ".venv" / "old").exists()
    assert len(machine.installed()) == 2


def test_a_moved_clone_is_set_up_anew(machine: Machine) -> None:
    """A moved clone is installed again, because an environment contains its own path."""
    machine.run()
    moved = Machine(machine.clone.rename(machine.directory / "moved"), machine.directory, machine.programs)
    moved.run()
    assert len(moved.installed()) == 2


def test_an_installation_that_failed_is_tried_again(machine: Machine) -> None:
    """A run after a failed installation installs again, because only a finished installation is recorded."""
    (machine.directory / "no-network").touch()
    assert machine.run().returncode != 0
    (machine.directory / "no-network").unlink()
    assert machine.run().returncode == 0
    assert len(machine.installed()) == 2


def test_debians_missing_half_of_venv_is_installed(machine: Machine) -> None:
    """If ensurepip is missing, apt installs the venv package for the version of this Python."""
    (machine.directory / "ensurepip").unlink()
    machine.programs.add("apt-get", f'case "$*" in *install*) touch "{machine.directory}/ensurepip";; esac')
    machine.programs.add("sudo", 'test "$1" = -n && shift; exec "$@"')
    done = machine.run()
    assert done.returncode == 0, done.stderr
    apt = [call for call in machine.programs.called() if call.startswith("apt-get")]
    assert apt == ["apt-get -qq update", "apt-get -qq install --yes --no-install-recommends python3.11-venv"]


@pytest.mark.parametrize("apt", ["", "exit 100", "exit 0"], ids=["none", "fails", "does not help"])
def test_where_that_does_not_help_it_says_what_to_do(machine: Machine, apt: str) -> None:
    """If apt is missing, fails or does not provide ensurepip, the error has a hint, and no environment is created."""
    (machine.directory / "ensurepip").unlink()
    if apt:
        machine.programs.add("apt-get", apt)
        machine.programs.add("sudo", 'test "$1" = -n && shift; exec "$@"')
    done = machine.run()
    assert done.returncode == 1
    assert "ensurepip" in done.stderr
    assert "hint: " in done.stderr
    assert not (machine.clone / ".venv").exists()


@pytest.mark.parametrize("too_old", [True, False])
def test_a_machine_without_a_new_enough_python_is_told_so(machine: Machine, *, too_old: bool) -> None:
    """Without Python 3.11 or later, the script fails, and the message says how to select a Python."""
    (machine.programs.directory / "python3").unlink()
    if too_old:
        machine.add_python(too_old=1)
    done = machine.run()
    assert done.returncode == 1
    assert "Python 3.11 or later is required" in done.stderr
    assert "PYTHON=" in done.stderr


def test_a_named_python_is_used(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Python that the variable PYTHON names is used."""
    named = machine.directory / "my-python"
    (machine.programs.directory / "python3").rename(named)
    monkeypatch.setenv("PYTHON", str(named))
    assert machine.run().returncode == 0


def test_an_unknown_kind_is_refused(machine: Machine) -> None:
    """A kind without a lock is refused, and the error names the missing file."""
    done = machine.run("everything")
    assert done.returncode == 1
    assert "requirements/everything.txt" in done.stderr
