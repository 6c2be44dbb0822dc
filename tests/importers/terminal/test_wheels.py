"""Packages for a task's tests: they are unpacked from wheels, and no code in a wheel is run."""

from __future__ import annotations

import io
import tarfile
import zipfile
from typing import TYPE_CHECKING

import pytest

from importers.wheels import installed_wheels, wheel
from securebench.errors import ConfigError
from securebench.importers.terminal.wheels import WheelSource, _require_plain_dependencies, _unpacked, site_files

if TYPE_CHECKING:
    from pathlib import Path


def test_pytest_and_what_it_needs_come_from_a_directory(tmp_path: Path) -> None:
    """Without a package index, pytest and its dependencies are unpacked from the wheels in a directory."""
    files, wheels = site_files(WheelSource(installed_wheels(tmp_path)), {})
    assert {"pytest/__init__.py", "pluggy/__init__.py", "iniconfig/__init__.py"} <= files.keys()
    assert sorted(name.partition("-")[0] for name in wheels) == [
        "iniconfig",
        "packaging",
        "pluggy",
        "pygments",
        "pytest",
    ]


def test_packages_of_the_tests_are_added(tmp_path: Path) -> None:
    """A package of a task is unpacked at the required version, without the scripts in its wheel."""
    directory = installed_wheels(tmp_path)
    wheel(
        directory,
        "extra",
        {"extra.py": "x = 1\n", "extra-1.0.data/purelib/more.py": "", "extra-1.0.data/scripts/x": ""},
    )
    files, wheels = site_files(WheelSource(directory), {"extra": "1.0"})
    assert "extra-1.0-py3-none-any.whl" in wheels
    assert {"extra.py", "more.py"} <= files.keys()
    assert not any("scripts" in path for path in files)


def test_a_package_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """If no wheel has the required version, the error names the requirement."""
    with pytest.raises(ConfigError) as caught:
        site_files(WheelSource(installed_wheels(tmp_path)), {"pytest-nothing": "9.9"})
    assert caught.value.code == "import-package-failed"
    assert "pytest-nothing==9.9" in str(caught.value)


@pytest.mark.parametrize("name", ["../outside.py", "/etc/outside.py", "a/../../b.py"])
def test_a_wheel_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    """H08: A wheel with a member outside the target directory is refused."""
    directory = installed_wheels(tmp_path)
    wheel(directory, "extra", {name: "x = 1\n"})
    with pytest.raises(ConfigError) as caught:
        site_files(WheelSource(directory), {"extra": "1.0"})
    assert caught.value.code == "import-archive-invalid"


def test_a_wheel_that_needs_a_url_is_refused(tmp_path: Path) -> None:
    """I26: A wheel that needs a package from a URL is refused: pip would run the code of a source archive."""
    backend = '[build-system]\nrequires = []\nbuild-backend = "evil"\nbackend-path = ["."]\n'
    code = f"open({str(tmp_path / 'canary')!r}, 'w')\n"
    with tarfile.open(tmp_path / "evil-1.0.tar.gz", "w:gz") as archive:
        for name, text in {"pyproject.toml": backend, "evil.py": code}.items():
            entry = tarfile.TarInfo(f"evil-1.0/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    directory = installed_wheels(tmp_path / "wheels")
    wheel(directory, "extra", {}, f"evil @ {(tmp_path / 'evil-1.0.tar.gz').as_uri()}")
    with pytest.raises(ConfigError) as caught:
        site_files(WheelSource(directory), {"extra": "1.0"})
    assert caught.value.code == "import-archive-invalid"
    assert "needs a package from a URL" in str(caught.value)
    assert not (tmp_path / "canary").exists()


def test_pip_is_not_a_module_of_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """I26: A ``pip.py`` in the working directory, which may contain downloaded tasks, is not run."""
    (tmp_path / "pip.py").write_text(f"open({str(tmp_path / 'canary')!r}, 'w')\n")
    monkeypatch.chdir(tmp_path)
    site_files(WheelSource(installed_wheels(tmp_path / "wheels")), {})
    assert not (tmp_path / "canary").exists()


def test_a_link_in_a_wheel_is_refused(tmp_path: Path) -> None:
    """A wheel with a member that is a symbolic link is refused."""
    directory = installed_wheels(tmp_path)
    path = wheel(directory, "extra", {})
    with zipfile.ZipFile(path, "a") as archive:
        link = zipfile.ZipInfo("extra.py")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
    with pytest.raises(ConfigError) as caught:
        site_files(WheelSource(directory), {"extra": "1.0"})
    assert caught.value.code == "import-archive-invalid"


@pytest.mark.parametrize("member", ["extra.py", "extra-1.0.dist-info/METADATA"])
def test_a_damaged_wheel_is_refused(tmp_path: Path, member: str) -> None:
    """A wheel with a member that cannot be decompressed is refused."""
    path = wheel(tmp_path, "extra", {})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, "x = 1\n" * 100)
    with zipfile.ZipFile(path) as archive:
        at = archive.getinfo(member).header_offset + 30 + len(member)
    data = bytearray(path.read_bytes())
    data[at] = 0xFF
    path.write_bytes(data)
    with pytest.raises(ConfigError) as caught:
        _read(path)
    assert caught.value.code == "import-archive-invalid"


def _read(path: Path) -> None:
    _require_plain_dependencies(path)
    list(_unpacked(path))
