"""Get pytest and the other Python packages that a task's tests need. Wheels are unpacked; their code is not run."""

from __future__ import annotations

import io
import lzma
import stat
import subprocess
import sys
import tempfile
import zipfile
import zlib
from dataclasses import dataclass
from email.parser import BytesParser
from pathlib import Path
from typing import TYPE_CHECKING, Final

from securebench.benchmark_pack.assets import MAX_ASSET_BYTES, MAX_ASSET_FILES
from securebench.errors import ConfigError
from securebench.importers.terminal.files import MAX_BYTES, MAX_FILES, TaskFile
from securebench.pack_paths import relative_path_fault
from securebench.plurals import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_MEGABYTE: Final = 1_000_000
PYTEST_VERSION: Final = "8.3.5"
RUNNER: Final = (
    ("pytest==8.3.5", "c69214aa47deac29fad6c2a4f590b9c4a9fdb16a403176fe154b79c0b4d4d820"),
    ("pluggy==1.5.0", "44e1ad92c8ca002de6377e165f3e0f1be63266ab4d554740532335b9d75ea669"),
    ("iniconfig==2.1.0", "9deba5723312380e77435581c6bf4935c94cbfab9b1ed33ef8d238ea168eb760"),
    ("packaging==24.2", "09abb1bccd265c01f4a3aa3f7a7db064b36514d2cba19a2f694fe6150451a759"),
    ("tomli==2.2.1", "cb55c73c5f4408779d0cf3eef9f762b9c9f147a77de7b258bef0a5628adc85cc"),
    ("exceptiongroup==1.2.2", "3111b9d131c238bec2f8f516e123e14ba243563fb135d3fe885990585aa7795b"),
)
"""Requirement and sha256 (hex) of pure-Python wheels: pytest and what it needs on Python 3.8 and later."""

_DOWNLOAD_SECONDS: Final = 300
"""Time limit of one pip command in seconds, so that gigabytes of packages do not delay the import of other tasks."""


_UNREADABLE: Final = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, RuntimeError, EOFError, OSError, ValueError)
"""What :mod:`zipfile` raises for a damaged, encrypted or unsupported archive."""


@dataclass(frozen=True, slots=True)
class WheelSource:
    """The source of wheels: a ``directory``, else pip's configured index.

    ``python`` is the Python version that wheels must support.
    """

    directory: Path | None = None
    python: str = "3.11"


def site_files(source: WheelSource, packages: Mapping[str, str]) -> tuple[dict[str, TaskFile], list[str]]:
    """Return the files of pytest, ``packages`` and their dependencies, and the names of their wheels.

    ``packages`` maps names to versions. An empty version means any version.

    Raises :class:`ConfigError` (``import-package-failed``, ``import-archive-invalid``, ``import-too-large``).
    """
    wanted = [f"{name}=={version}" if version else name for name, version in packages.items()]
    with tempfile.TemporaryDirectory(prefix="securebench-import-") as scratch:
        directory = Path(scratch)
        if source.directory is None:
            lines = [f"{requirement} --hash=sha256:{digest}" for requirement, digest in RUNNER]
            _download(directory, lines, source, "--require-hashes", "--no-deps")
        else:
            for wheel in sorted(source.directory.glob("*.whl")):
                _require_plain_dependencies(wheel)
            _download(directory, ["pytest"], source)
        if wanted:
            _download(directory, wanted, source)
        wheels = sorted(directory.glob("*.whl"))
        files = dict(entry for wheel in wheels for entry in _unpacked(wheel))
        names = [wheel.name for wheel in wheels]
    size = sum(len(file.data) for file in files.values())
    if size > MAX_ASSET_BYTES or len(files) > MAX_ASSET_FILES:
        what = f"{', '.join(wanted)}: {counted(len(files), 'file')}, {size // _MEGABYTE} MB"
        raise _too_large(f"the packages for the task's tests are too large for a pack ({what})")
    return files, names


def _download(directory: Path, lines: Sequence[str], source: WheelSource, *options: str) -> None:
    """Download wheels with this environment's pip, never source packages: pip would run their code."""
    wanted = directory / "requirements.txt"
    wanted.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    places = ["--no-index", "--find-links", str(source.directory)] if source.directory else []
    pip = [sys.executable, "-I", "-m", "pip"]  # -I ignores a module named pip in the working directory
    command = [*pip, "download", "--quiet", "--disable-pip-version-check", *places, *options]
    command += ["--only-binary=:all:", "--python-version", source.python, "--dest", str(directory)]
    try:
        subprocess.run(  # noqa: S603 - a fixed command of this environment, no shell
            [*command, "--requirement", str(wanted)],
            check=True,
            capture_output=True,
            text=True,
            timeout=_DOWNLOAD_SECONDS,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.CalledProcessError as error:
        raise _failed(lines, (error.stderr or error.stdout).strip()[-2000:]) from None
    except subprocess.TimeoutExpired:
        raise _failed(lines, f"timed out after {_DOWNLOAD_SECONDS} seconds") from None
    except OSError as error:
        raise _failed(lines, str(error)) from None


def _require_plain_dependencies(wheel: Path) -> None:
    """Refuse a wheel that needs a package from a URL. If the URL leads to a source archive, pip would run its code."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.infolist():
                if member.filename.endswith(".dist-info/METADATA"):
                    with archive.open(member) as file:
                        metadata = BytesParser().parse(file, headersonly=True)
                    for needed in metadata.get_all("Requires-Dist", []):
                        if "@" in str(needed).partition(";")[0]:
                            raise _broken(wheel, f"it needs a package from a URL: {str(needed)[:100]!r}")
    except _UNREADABLE as error:
        raise _broken(wheel, str(error)) from None


def _unpacked(wheel: Path) -> Iterator[tuple[str, TaskFile]]:
    """Yield the files that a wheel installs on the module path: no scripts, headers or data."""
    room = MAX_BYTES
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = archive.infolist()
            if len(members) > MAX_FILES:
                raise _too_large(f"{wheel.name}: it contains more than {MAX_FILES} files")
            for member in members:
                path = _module_path(member.filename)
                if not path or member.is_dir():
                    continue
                room -= member.file_size
                if room < 0:
                    raise _too_large(f"{wheel.name}: it is larger than {MAX_BYTES} bytes uncompressed")
                if relative_path_fault(path) or stat.S_ISLNK(member.external_attr >> 16):
                    raise _broken(wheel, f"{path[:100]!r} is a link or has an unsafe name")
                yield path, TaskFile(_content(archive, member), executable=False)
    except _UNREADABLE as error:
        raise _broken(wheel, str(error)) from None


def _module_path(name: str) -> str:
    first, _, rest = name.partition("/")
    if not first.endswith(".data"):
        return name
    kind, _, inner = rest.partition("/")
    return inner if kind in ("purelib", "platlib") else ""


def _content(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """Return a member's bytes, never more than its header declares."""
    with archive.open(member) as file:
        return io.BytesIO(file.read(member.file_size)).getvalue()


def _broken(wheel: Path, message: str) -> ConfigError:
    hint = "download it again, or use another version of it"
    return ConfigError(f"{wheel.name}: {message}", code="import-archive-invalid", hint=hint)


def _too_large(message: str) -> ConfigError:
    hint = "build an image with the packages, and write the task as a row of your own pack"
    return ConfigError(message, code="import-too-large", hint=hint)


def _failed(lines: Sequence[str], message: str) -> ConfigError:
    names = ", ".join(line.split()[0] for line in lines)
    return ConfigError(
        f"cannot download {names} with pip: {message}",
        code="import-package-failed",
        hint="check the network, or pass --wheels with a directory that contains all wheels",
    )
