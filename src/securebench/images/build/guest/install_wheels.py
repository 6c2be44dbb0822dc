"""Install the wheels of a directory into this Python, without pip, an index or a network.

Run as ``python3 install_wheels.py DIRECTORY``. From Python 3.7 on, compiled modules record the hash of their source,
not its time.
"""

import compileall
import configparser
import re
import stat
import sys
import sysconfig
import zipfile
from os.path import relpath
from pathlib import Path

LAUNCHER = """\
#!{python}
import sys
from {module} import {first}
if __name__ == "__main__":
    sys.exit({call}())
"""
_PROGRAM = re.compile(r"(?!\.{1,2}$)[\w.+-]{1,100}", re.ASCII)
_NAME = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"
_TARGET = re.compile(rf"({_NAME})\s*:\s*({_NAME})\s*(?:\[[^\[\]]*\])?", re.ASCII)
MAX_BYTES = 8 << 30  # the maximum size of all files of one wheel, in bytes


class WheelError(Exception):
    """The wheel is damaged, or something in it is unsafe."""


def main(directory: str) -> int:
    """Install each wheel, and return 0. Exit with a message if a wheel cannot be installed."""
    places = {kind: Path(path) for kind, path in sysconfig.get_paths().items()}
    for wheel in sorted(Path(directory).glob("*.whl")):
        print(f"installing {wheel.name}")  # noqa: T201 - this is the log of a build
        try:
            made = install_wheel(wheel, places)
        except WheelError as error:
            raise SystemExit(str(error)) from None
        for path in made:
            if path.suffix == ".py" and places["scripts"] not in path.parents:
                _compile(path)
    return 0


def install_wheel(path: Path, places: "dict[str, Path]", room: int = MAX_BYTES) -> "list[Path]":
    """Write the files of a wheel, at most ``room`` bytes, to ``places``. Return their paths.

    ``places`` maps the kinds of ``sysconfig.get_paths()`` to directories. Raises :class:`WheelError`. SecureBench also
    calls this on the host, for agent programs. So no file of a wheel is written outside ``places``, and no file is run.
    """
    try:
        with zipfile.ZipFile(str(path)) as archive:
            return Wheel(archive, places, room).install()
    except WheelError as error:
        raise WheelError(f"{path.name}: {error}") from None
    except Exception as error:  # zipfile and its decompressors raise many types for hostile archives
        raise WheelError(f"{path.name} is damaged: {error!r}") from error


class Wheel:
    """One wheel to install.

    ``places`` maps each kind of file to its target directory. ``room`` is the maximum total size of the wheel's files,
    in bytes.
    """

    def __init__(self, archive: zipfile.ZipFile, places: "dict[str, Path]", room: int) -> None:
        if sum(member.file_size for member in archive.infolist()) > room:
            raise WheelError(f"its files have more than {room} bytes in total")
        tops = {name.split("/")[0] for name in archive.namelist()}
        found = [top for top in tops if top.endswith(".dist-info")]
        if len(found) != 1:
            raise WheelError("it must contain one .dist-info directory")
        self._archive = archive
        self._info = found[0]
        self._places = places
        pure = b"root-is-purelib: true" in archive.read(f"{self._info}/WHEEL").lower()
        self._library = places["purelib" if pure else "platlib"]

    def install(self) -> "list[Path]":
        """Write the files, the programs and the record of the wheel, and return their paths."""
        made = []
        for member in self._archive.infolist():
            target = self._target(member.filename)
            if target is not None:
                executable = bool(member.external_attr >> 16 & stat.S_IXUSR)
                made.append(self._write(target, self._read(member), executable))
        made += self._launchers()
        info = self._library / self._info
        made.append(self._write(info / "INSTALLER", b"securebench\n"))
        record = info / "RECORD"
        lines = [f"{relpath(str(path), str(self._library))},,\n" for path in (*made, record)]
        made.append(self._write(record, "".join(lines).encode()))
        return made

    def _read(self, member: zipfile.ZipInfo) -> bytes:
        """Return the content of a member, cut at the size in its header."""
        with self._archive.open(member) as file:
            return file.read(member.file_size)

    def _target(self, name: str) -> "Path | None":
        """Return the target path of a member, or ``None`` to skip it.

        Each directory in the wheel's ``.data`` directory is named after the kind of its files, such as ``scripts``.
        The exception is ``headers``, whose kind is ``include``. Files in ``.data`` are skipped if ``places`` lacks
        their kind.
        """
        parts = name.split("/")
        if ".." in parts or name.startswith("/") or not name.isprintable():
            raise WheelError(f"it contains the unsafe path {name[:100]!r}")
        if name.endswith("/") or name == f"{self._info}/RECORD":
            return None
        if parts[0] != self._info[: -len(".dist-info")] + ".data":
            return self._library.joinpath(*parts)
        kind, rest = parts[1] if len(parts) > 1 else "", parts[2:]
        if kind == "headers" and "include" in self._places:
            return self._places["include"].joinpath(self._info.split("-")[0], *rest)
        return self._places[kind].joinpath(*rest) if rest and kind in self._places else None

    def _write(self, target: Path, data: bytes, executable: bool = False) -> Path:  # noqa: FBT001, FBT002 - as files are
        if self._places["scripts"] in target.parents:
            executable = True
            if data.startswith(b"#!python"):
                data = b"#!" + sys.executable.encode() + b"\n" + data.partition(b"\n")[2]
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        target.chmod(0o755 if executable else 0o644)
        return target

    def _launchers(self) -> "list[Path]":
        """Write a program for each console script of the wheel, and return their paths."""
        name = f"{self._info}/entry_points.txt"
        if name not in self._archive.namelist():
            return []
        points = configparser.RawConfigParser(delimiters=("=",))
        points.optionxform = str  # type: ignore[assignment, method-assign]  # keep the case of names
        points.read_string(self._archive.read(name).decode())
        programs = points.items("console_scripts") if points.has_section("console_scripts") else []
        return [self._launcher(program, value) for program, value in programs]

    def _launcher(self, program: str, value: str) -> Path:
        """Write one program and return its path.

        Unusual names and targets are refused, because the name becomes a path and the target becomes code.
        """
        target = _TARGET.fullmatch(value.strip())
        if _PROGRAM.fullmatch(program) is None or target is None:
            raise WheelError(f"it contains the unsafe program {program[:100]!r} = {value[:100]!r}")
        module, call = target.groups()
        text = LAUNCHER.format(python=sys.executable, module=module, first=call.split(".")[0], call=call)
        return self._write(self._places["scripts"] / program, text.encode())


def _compile(path: Path) -> None:
    try:
        from py_compile import PycInvalidationMode
    except ImportError:  # Python 3.6 can only record the time of the source
        compileall.compile_file(str(path), quiet=2)
    else:
        compileall.compile_file(str(path), quiet=2, invalidation_mode=PycInvalidationMode.CHECKED_HASH)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
