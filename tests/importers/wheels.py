"""Wheels for tests of imports, so that these need no package index."""

from __future__ import annotations

import zipfile
from importlib.metadata import distribution
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

NEEDED = ("pytest", "pluggy", "iniconfig", "packaging", "pygments")
_WHEEL = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def installed_wheels(directory: Path, names: tuple[str, ...] = NEEDED) -> Path:
    """Repack the installed distributions ``names`` as wheels in ``directory``, and return ``directory``."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in names:
        found = distribution(name)
        files = [file for file in found.files or () if ".." not in file.parts and "__pycache__" not in file.parts]
        with zipfile.ZipFile(directory / f"{name}-{found.version}-py3-none-any.whl", "w") as archive:
            for file in files:
                if file.name not in ("RECORD", "INSTALLER", "REQUESTED"):
                    archive.writestr(str(file), file.read_binary())
    return directory


def wheel(directory: Path, name: str, files: Mapping[str, str], requires: str = "") -> Path:
    """Write a wheel of the package ``name``, version 1.0, with ``files``, and return its path."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}-1.0-py3-none-any.whl"
    need = f"Requires-Dist: {requires}\n" if requires else ""
    with zipfile.ZipFile(path, "w") as archive:
        for inner, text in files.items():
            archive.writestr(inner, text)
        archive.writestr(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{need}")
        archive.writestr(f"{name}-1.0.dist-info/WHEEL", _WHEEL)
    return path
