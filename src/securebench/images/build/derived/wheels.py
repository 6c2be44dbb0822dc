"""Pinned wheels for a base image's Python, downloaded by this machine's pip. No code from a wheel runs."""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from securebench.errors import ImageError
from securebench.fs.digest import file_digest
from securebench.images.build.bootstrap import query
from securebench.images.registry.model import Platform
from securebench.strict_input.faults import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

PROJECT: Final = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
"""A regular expression for the name of a Python project."""
PIN: Final = rf"{PROJECT}==[A-Za-z0-9][A-Za-z0-9._+!-]*"
"""A regular expression for an exact requirement."""
HASH: Final = r"(?:[ \t]+--hash=sha256:[0-9a-f]{64})"
"""A regular expression for a hash after an exact requirement."""

_ALLOWED: Final = re.compile(rf"{PIN}{HASH}*", re.ASCII)
_GLIBC: Final = range(17, 37)
"""The minor versions of glibc in manylinux tags. The last is that of Debian 12, as in SecureBench's own images."""
_MACHINES: Final = {"amd64": "x86_64", "arm64": "aarch64", "386": "i686"}
_LINES_SHOWN: Final = 5
_CREDENTIALS: Final = re.compile(r"(?<=://)[^/@\s]+@")


def fetch_wheels(requirements: Sequence[str], python: str, directory: Path) -> tuple[str, ...]:
    """Download wheels for ``requirements`` (``name==version``) and ``python`` (``3.11``) into ``directory``.

    Hashes (``--hash=sha256:HEX``) may follow a requirement. If one requirement has a hash, every requirement
    needs at least one hash. Dependencies are not resolved: a recipe lists them. Returns ``NAME sha256:HEX`` for each
    file. Raises :class:`ImageError` (``image-tool-missing``, ``image-build-failed``).
    """
    for requirement in requirements:
        if _ALLOWED.fullmatch(requirement) is None:
            raise ImageError(  # pip runs code of a source archive at a URL, even if only wheels are allowed
                f"{shown(requirement)} is not an exact requirement",
                code="image-build-failed",
                hint="write it as NAME==VERSION",
            )
    if find_spec("pip") is None:
        raise ImageError(
            "downloading wheels needs pip, which this Python does not have",
            code="image-tool-missing",
            hint=f"run '{sys.executable} -m ensurepip'",
        )
    with TemporaryDirectory(prefix="securebench-") as temporary:
        pins = Path(temporary, "requirements.txt")
        pins.write_text("".join(f"{requirement}\n" for requirement in requirements), encoding="utf-8")
        done = query(_argv(pins, python, directory))
    if done.returncode != 0:
        tail = "\n".join(f"    {line}" for line in done.stderr.strip().splitlines()[-_LINES_SHOWN:])
        raise ImageError(
            f"pip could not download the wheels:\n{_CREDENTIALS.sub('', tail)}",
            code="image-build-failed",
            hint=f"check the network, and that each requirement has a wheel for Python {python} and this machine",
        )
    return tuple(f"{path.name} sha256:{file_digest(path)}" for path in sorted(directory.glob("*.whl")))


def _argv(pins: Path, python: str, directory: Path) -> tuple[str, ...]:
    made_for = Platform.of_this_machine().architecture
    machine = _MACHINES.get(made_for, made_for)
    tags = (f"manylinux2014_{machine}", *(f"manylinux_2_{minor}_{machine}" for minor in _GLIBC), f"linux_{machine}")
    return (
        *(sys.executable, "-I", "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"),
        *("--only-binary=:all:", "--no-deps", f"--dest={directory}"),
        *("--implementation=cp", f"--python-version={python}"),
        *(f"--platform={tag}" for tag in tags),
        f"--requirement={pins}",
    )
