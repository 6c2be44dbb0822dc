"""Pinned wheels: pip downloads them without running code from them, and they are installed without pip."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from securebench.errors import ImageError
from securebench.images.build.derived.wheels import fetch_wheels
from securebench.images.build.guest import install_wheels

if TYPE_CHECKING:
    from collections.abc import Mapping

INFO = "tool-1.dist-info"


def wheel(directory: Path, members: Mapping[str, str], name: str = "tool-1-py3-none-any.whl") -> Path:
    """Write a wheel with ``members`` and the required metadata, and return its path."""
    basic = {
        f"{INFO}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{INFO}/METADATA": "Metadata-Version: 2.1\nName: tool\nVersion: 1\n",
    }
    path = directory / name
    with zipfile.ZipFile(path, "w") as archive:
        for member, text in {**basic, f"{INFO}/RECORD": "", **members}.items():
            archive.writestr(member, text)
    return path


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory that is pip's only source of packages."""
    directory = tmp_path / "index"
    directory.mkdir()
    for name, value in {"NO_INDEX": "1", "FIND_LINKS": str(directory), "CONFIG_FILE": "/dev/null"}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    return directory


def test_a_pinned_wheel_is_fetched_with_its_digest(index: Path, tmp_path: Path) -> None:
    """A pinned wheel is downloaded, and its name and digest are returned."""
    wheel(index, {"tool.py": ""})
    (tmp_path / "got").mkdir()
    (line,) = fetch_wheels(("tool==1",), "3.11", tmp_path / "got")
    assert line.startswith("tool-1-py3-none-any.whl sha256:")


def test_a_source_archive_is_never_used_as_a_wheel(index: Path, tmp_path: Path) -> None:
    """F02: a source archive is refused, because pip would run its code on this machine to read its metadata."""
    import io
    import tarfile

    canary = tmp_path / "canary"
    data = f"open({str(canary)!r}, 'w')\n".encode()
    with tarfile.open(index / "tool-1.tar.gz", "w:gz") as archive:
        entry = tarfile.TarInfo("tool-1/setup.py")
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))
    with pytest.raises(ImageError, match="pip could not download") as caught:
        fetch_wheels(("tool==1",), "3.11", tmp_path)
    assert caught.value.code == "image-build-failed"
    assert not canary.exists()


@pytest.mark.parametrize(
    "requirement",
    ["tool", "tool @ file:///tool.tar.gz", "-r/etc/passwd", "tool==1\n-r x", "tool==1 --pre", "./tool.whl"],
)
def test_only_exact_requirements_reach_pip(tmp_path: Path, requirement: str) -> None:
    """I26: only exact requirements are passed to pip: it would run the code of a source archive at a URL."""
    with pytest.raises(ImageError, match="not an exact requirement"):
        fetch_wheels((requirement,), "3.11", tmp_path)


def test_a_wheel_with_another_hash_is_refused(index: Path, tmp_path: Path) -> None:
    """Pip refuses a wheel whose digest is not the hash in its requirement."""
    wheel(index, {"tool.py": ""})
    with pytest.raises(ImageError, match="HASHES"):
        fetch_wheels((f"tool==1 --hash=sha256:{'0' * 64}",), "3.11", tmp_path)


def test_pip_is_told_which_python_the_wheels_are_for(index: Path, tmp_path: Path) -> None:
    """Of two wheels, the one for the requested version of Python is fetched, not the one for this Python."""
    this = f"cp{sys.version_info.major}{sys.version_info.minor}"
    for tag in (this, "cp39"):
        wheel(index, {"tool.py": ""}, f"tool-1-{tag}-none-any.whl")
    (line,) = fetch_wheels(("tool==1",), "3.9", tmp_path)
    assert line.startswith("tool-1-cp39-none-any.whl ")
    with pytest.raises(ImageError):
        fetch_wheels(("tool==1",), "3.8", tmp_path / "none")


def _installed(tmp_path: Path, members: Mapping[str, str]) -> Path:
    """Install a wheel into a new virtual environment, and return the environment's Python."""
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    (tmp_path / "wheels").mkdir()
    wheel(tmp_path / "wheels", members)
    python = environment / "bin" / "python"
    subprocess.run([python, "-I", install_wheels.__file__, str(tmp_path / "wheels")], check=True, capture_output=True)
    return python


def test_a_wheel_is_installed_as_pip_would_do_it(tmp_path: Path) -> None:
    """Programs run, data files are in place, the metadata lists all files, and every module is compiled."""
    python = _installed(
        tmp_path,
        {
            "tool/__init__.py": "class Main:\n    def run():\n        print('ran')\n        return 3\n",
            f"{INFO}/entry_points.txt": "[console_scripts]\ntool = tool:Main.run\n[other]\nx = y\n",
            "tool-1.data/scripts/script": "#!python\nprint('script')\n",
            "tool-1.data/data/share/tool.txt": "data\n",
        },
    )
    program = python.parent / "tool"
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("ran\n", 3)
    assert subprocess.check_output([python.parent / "script"]) == b"script\n"
    assert (python.parent.parent / "share" / "tool.txt").read_text() == "data\n"
    code = "from importlib.metadata import files, version; print(version('tool'), len(files('tool')))"
    assert subprocess.check_output([python, "-c", code]) == b"1 9\n"
    (compiled,) = python.parent.parent.glob("lib/python*/site-packages/tool/__pycache__/*.pyc")
    assert compiled.read_bytes()[4] == 3, "by the hash of its source, which is checked"


@pytest.mark.parametrize("name", ["../evil.py", "/evil.py", "a/../../evil.py"])
def test_a_wheel_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    """H14: a wheel with a member outside the target directory is refused, and the member is not written."""
    with pytest.raises(subprocess.CalledProcessError):
        _installed(tmp_path, {name: "evil"})
    assert not list(tmp_path.rglob("evil.py"))


def _refusal(tmp_path: Path, members: Mapping[str, str]) -> str:
    """Install a wheel that must be refused, as SecureBench does on the host, and return the error's message."""
    tree = tmp_path / "tree"
    places = {"purelib": tree, "platlib": tree, "scripts": tree / "bin", "data": tree}
    with pytest.raises(install_wheels.WheelError) as caught:
        install_wheels.install_wheel(wheel(tmp_path, members), places)
    return str(caught.value)


@pytest.mark.parametrize(
    ("program", "target"),
    [
        ("{outside}/evil", "tool:main"),
        ("../../evil", "tool:main"),
        ("..", "tool:main"),
        ("evil" * 99, "tool:main"),
        ("evil\x1b[2J", "tool:main"),
        ("evil", "tool\n import os:main"),
        ("evil", "os; os.system('id') #:main"),
        ("evil", "tool:main() or exit"),
        ("evil", "tool"),
    ],
)
def test_a_program_of_a_wheel_neither_leads_out_nor_is_code(tmp_path: Path, program: str, target: str) -> None:
    """I25: unsafe names and targets of programs are refused: wheels of agents are installed on the host."""
    before = tmp_path / "outside"
    before.mkdir()
    points = f"[console_scripts]\n{program.format(outside=before)} = {target}\n"
    assert "unsafe program" in _refusal(tmp_path, {f"{INFO}/entry_points.txt": points})
    assert not list(tmp_path.rglob("evil*"))


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ({"evil\n.py": ""}, "unsafe path"),
        ({"../evil.py": ""}, "unsafe path"),
        ({"a": "", "a/b": ""}, "damaged"),
        ({f"{INFO}/entry_points.txt": "no section\n"}, "damaged"),
        ({"other-1.dist-info/WHEEL": ""}, "one .dist-info directory"),
    ],
)
def test_a_hostile_wheel_is_an_error(tmp_path: Path, members: Mapping[str, str], why: str) -> None:
    """H13: the error for an unsafe or damaged wheel names the wheel."""
    assert why in (message := _refusal(tmp_path, members))
    assert message.startswith("tool-1-py3-none-any.whl")


@pytest.mark.parametrize("member", ["tool-1.data/headers/x.h", "tool-1.data/scripts", "tool-1.data"])
def test_a_member_without_a_place_is_left_out(tmp_path: Path, member: str) -> None:
    """C headers are not installed: an agent's installation has no directory for them.

    A member of ``.data`` that is not inside one of its directories, such as ``scripts``, is not installed.
    """
    path = wheel(tmp_path, {member: "x"})
    tree = tmp_path / "tree"
    made = install_wheels.install_wheel(path, {"purelib": tree, "scripts": tree / "bin", "data": tree})
    assert {made_path.parent for made_path in made} == {tree / INFO}


def test_a_wheel_is_limited(tmp_path: Path) -> None:
    """H14: a wheel whose members have too many bytes in total is refused before anything is written."""
    with pytest.raises(install_wheels.WheelError, match="more than 1000 bytes in total"):
        install_wheels.install_wheel(wheel(tmp_path, {"big": "x" * 1000}), {"purelib": tmp_path / "tree"}, 1000)
    assert not (tmp_path / "tree").exists()


def test_the_installer_is_for_old_pythons_too() -> None:
    """The installer has only syntax of Python 3.7, and imports nothing from SecureBench."""
    import ast

    source = Path(install_wheels.__file__).read_text()
    ast.parse(source, feature_version=(3, 7))
    assert "securebench." not in source
    assert "from __future__" not in source
