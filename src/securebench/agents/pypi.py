"""Make the archive of an agent program from packages on PyPI, without running any code of the packages."""

from __future__ import annotations

import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING, Final

from securebench.agents.catalogue import MAIN
from securebench.agents.model import TOP
from securebench.agents.package import LIMITS, unusable
from securebench.agents.requirements import read_requirements
from securebench.images.build.derived.wheels import fetch_wheels
from securebench.images.build.guest.install_wheels import WheelError, install_wheel
from securebench.printable import printable_line

if TYPE_CHECKING:
    from securebench.agents.declaration import ProgramSource

PYTHON: Final = "3.11"
"""The Python version of SecureBench's base image, whose Python runs the agents from PyPI."""

_MAIN: Final = """\
import runpy
import sys

sys.argv[0] = {name!r}
runpy.run_module({module!r}, run_name="__main__", alter_sys=True)
"""


def write_archive(source: ProgramSource, file: IO[bytes]) -> None:
    """Write the pinned packages of ``source`` and their start script to ``file``, as a compressed tar archive.

    Raises the errors of :func:`read_requirements` and :func:`fetch_wheels`, and :class:`InfrastructureError`
    (``agent-unusable``).
    """
    assert source.requirements is not None
    requirements = read_requirements(source.requirements)
    with TemporaryDirectory(prefix="securebench-") as temporary:
        wheels, tree = Path(temporary, "wheels"), Path(temporary, TOP)
        for directory in (wheels, tree):
            directory.mkdir()
        fetch_wheels(requirements, PYTHON, wheels)
        places = {"purelib": tree, "platlib": tree, "scripts": tree / "bin", "data": tree}
        room = LIMITS.bytes
        for wheel in sorted(wheels.glob("*.whl")):
            try:
                room -= sum(path.stat().st_size for path in install_wheel(wheel, places, room))
            except WheelError as error:
                hint = "list another version of the package in the requirements"
                raise unusable(source.pypi or "", printable_line(str(error)), hint) from None
        (tree / MAIN).write_text(_MAIN.format(name=source.pypi, module=source.module), encoding="utf-8")
        with tarfile.open(fileobj=file, mode="w:gz", compresslevel=1) as tar:
            tar.add(tree, TOP, filter=_plain)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return ``member`` without properties of this machine: root owns it, and every user may read it."""
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
    return member
