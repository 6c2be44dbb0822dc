"""Apply the final tree to the repository in a sandbox, before any code of the candidate runs there.

The changes and a script are written to a directory of the host, which is mounted read-only in the sandbox. The script
uses the image's own ``sh``, ``rm``, ``rmdir`` and ``cp`` and puts each path in single quotes. At its end, it verifies
every path. It also verifies that the tests' working directory is a directory, because not every driver does. The
directory of the host is emptied before tests run.
"""

from __future__ import annotations

import os
from itertools import islice
from typing import TYPE_CHECKING, Final

from securebench.fs.rmtree import remove_entry
from securebench.fs.safe_open import OPEN_DIRECTORY, opened
from securebench.patches.model import FileVersion
from securebench.patches.names import parents
from securebench.sandboxes.base import Mount

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from securebench.patches.model import Delta

_BATCH: Final = 200
"""The maximum number of names per program call. They take at most a megabyte: less than the kernel allows."""

TARGET: Final = "/opt/securebench/changes"
"""Where the sandbox mounts the changes."""

NO_WORKDIR: Final = 77
"""The script's exit code if all changes were applied, but the tests' working directory is not a directory."""

_SCRIPT: Final = "apply.sh"
_FILES: Final = "files"


class PatchLayout:
    """Changes to ``repository``, and a script that applies them. Both are written to ``directory``, which is created.

    ``repository`` and ``workdir``, where the tests run, are absolute paths in the sandbox.
    """

    def __init__(self, directory: Path, delta: Delta, repository: str, workdir: str) -> None:
        self._directory = directory
        files = directory / _FILES
        files.mkdir(parents=True)
        for path, version in sorted(delta.items()):
            if version is not None:
                _write(files / os.fsdecode(path), version)
        lines = [*_script(delta, os.fsencode(repository)), _check_workdir(os.fsencode(workdir))]
        _write(directory / _SCRIPT, FileVersion(b"\n".join(lines) + b"\n"))
        _open_up(directory)

    @property
    def mount(self) -> Mount:
        """The mount that the sandbox needs."""
        return Mount(self._directory, TARGET)

    @property
    def argv(self) -> tuple[str, ...]:
        """The command that applies the changes."""
        return ("/bin/sh", f"{TARGET}/{_SCRIPT}")

    def remove(self) -> None:
        """Remove the changes and the script from the host's directory: the candidate's code must not read them."""
        with opened(self._directory, OPEN_DIRECTORY) as directory:
            for name in (_FILES, _SCRIPT):
                remove_entry(directory, name)


def _write(target: Path, version: FileVersion) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if version.link:
        target.symlink_to(os.fsdecode(version.content))
        return
    target.write_bytes(version.content)
    target.chmod(0o755 if version.executable else 0o644)


def _open_up(directory: Path) -> None:
    """Make all directories readable in the sandbox, whatever the umask of this process."""
    directory.chmod(0o755)
    for parent, names, _ in os.walk(directory):
        for name in names:
            path = os.path.join(parent, name)  # noqa: PTH118 - names are surrogate-escaped bytes
            if not os.path.islink(path):  # noqa: PTH114
                os.chmod(path, 0o755)  # noqa: PTH101, S103 - the sandbox may use any user


def _script(delta: Delta, repository: bytes) -> Iterator[bytes]:
    """Yield the script's lines. The script stops with an error at the first failed check.

    It starts few programs even for many files, because ``[`` is a shell builtin.
    """
    yield b"set -eu"
    yield b"umask 022"
    yield b"cd %s" % _quoted(repository)
    names = {path: _quoted(b"./" + path) for path in sorted(delta)}
    for batch in _batches(names.values()):  # in order of names: a link is removed before paths below it
        yield b"rm -rf -- %s" % b" ".join(batch)  # if a file replaces a directory, the whole directory is removed
    gone = [path for path in names if delta[path] is None]
    for directory in sorted({parent for path in gone for parent in parents(path)}, reverse=True):
        yield b"rmdir -- %s 2>/dev/null || :" % _quoted(b"./" + directory)  # succeeds only for an empty directory
    if len(gone) < len(names):
        yield b"cp -RP -- %s/%s/. ." % (TARGET.encode(), _FILES.encode())
    for path, name in names.items():
        yield _check(name, delta[path])


def _batches(names: Iterable[bytes]) -> Iterator[list[bytes]]:
    left = iter(names)
    while batch := list(islice(left, _BATCH)):
        yield batch


def _check(name: bytes, version: FileVersion | None) -> bytes:
    if version is None:
        return b"[ ! -f %s ] && [ ! -L %s ] || exit 1" % (name, name)  # a directory may exist here instead
    if version.link:
        return b"[ -L %s ] || exit 1" % name
    size = b"[ -s %s ]" % name if version.content else b"[ ! -s %s ]" % name
    mode = b"[ -x %s ]" % name if version.executable else b"[ ! -x %s ]" % name
    return b"[ -f %s ] && [ ! -L %s ] && %s && %s || exit 1" % (name, name, size, mode)


def _check_workdir(path: bytes) -> bytes:
    return b"[ -d %s ] || exit %d" % (_quoted(path), NO_WORKDIR)


def _quoted(path: bytes) -> bytes:
    return b"'" + path.replace(b"'", b"'\\''") + b"'"
