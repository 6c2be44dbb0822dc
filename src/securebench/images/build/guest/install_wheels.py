"""Install the wheels of a directory into this Python, without pip, an index or a network.

Run as ``python3 install_wheels.py DIRECTORY``. Modules are compiled with the hash of their source, not its time.
"""

import compileall
import configparser
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


def main(directory: str) -> int:
    """Install each wheel, and return the exit code."""
    places = {kind: Path(path) for kind, path in sysconfig.get_paths().items()}
    for wheel in sorted(Path(directory).glob("*.whl")):
        print(f"installing {wheel.name}")  # noqa: T201 - this is the log of a build
        with zipfile.ZipFile(str(wheel)) as archive:
            for path in Wheel(archive, places).install():
                if path.suffix == ".py" and places["scripts"] not in path.parents:
                    _compile(path)
    return 0


class Wheel:
    """One wheel, and the target directory of each kind of file."""

    def __init__(self, archive: zipfile.ZipFile, places: "dict[str, Path]") -> None:
        tops = {name.split("/")[0] for name in archive.namelist()}
        found = [top for top in tops if top.endswith(".dist-info")]
        if len(found) != 1:
            raise SystemExit(f"{archive.filename} is not a wheel")
        self._archive = archive
        self._info = found[0]
        self._places = places
        pure = b"root-is-purelib: true" in archive.read(f"{self._info}/WHEEL").lower()
        self._library = places["purelib" if pure else "platlib"]

    def install(self) -> "list[Path]":
        """Write all files, the programs and the record of the wheel, and return their paths."""
        made = []
        for member in self._archive.infolist():
            target = self._target(member.filename)
            if target is not None:
                executable = bool(member.external_attr >> 16 & stat.S_IXUSR)
                made.append(self._write(target, self._archive.read(member), executable))
        made += self._launchers()
        info = self._library / self._info
        made.append(self._write(info / "INSTALLER", b"securebench\n"))
        record = info / "RECORD"
        lines = [f"{relpath(str(path), str(self._library))},,\n" for path in (*made, record)]
        made.append(self._write(record, "".join(lines).encode()))
        return made

    def _target(self, name: str) -> "Path | None":
        """Return the target path of a member. Files in ``.data`` go to the directory of their kind."""
        parts = name.split("/")
        if ".." in parts or name.startswith("/"):
            raise SystemExit(f"the wheel contains the unsafe path {name!r}")
        if name.endswith("/") or name == f"{self._info}/RECORD":
            return None
        if parts[0] != self._info[: -len(".dist-info")] + ".data":
            return self._library.joinpath(*parts)
        kind, rest = parts[1], parts[2:]
        if kind == "headers":
            return self._places["include"].joinpath(self._info.split("-")[0], *rest)
        return self._places[kind].joinpath(*rest) if kind in self._places else None

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
        """Write the programs of its entry points."""
        name = f"{self._info}/entry_points.txt"
        if name not in self._archive.namelist():
            return []
        points = configparser.RawConfigParser(delimiters=("=",))
        points.optionxform = str  # type: ignore[assignment, method-assign]  # keep the case of names
        points.read_string(self._archive.read(name).decode())
        programs = points.items("console_scripts") if points.has_section("console_scripts") else []
        return [self._launcher(program, value) for program, value in programs]

    def _launcher(self, program: str, value: str) -> Path:
        module, _, call = (part.strip() for part in value.split("[", maxsplit=1)[0].partition(":"))
        text = LAUNCHER.format(python=sys.executable, module=module, first=call.split(".")[0], call=call)
        return self._write(self._places["scripts"] / program, text.encode())


def _compile(path: Path) -> None:
    try:
        from py_compile import PycInvalidationMode
    except ImportError:  # Python 3.6 supports only the time
        compileall.compile_file(str(path), quiet=2)
    else:
        compileall.compile_file(str(path), quiet=2, invalidation_mode=PycInvalidationMode.CHECKED_HASH)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
