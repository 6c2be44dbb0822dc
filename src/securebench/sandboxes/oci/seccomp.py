"""The seccomp filter of a sandbox: a profile, which libseccomp compiles to a BPF program.

Compilation takes about ten milliseconds, so each program is cached in a file, in a directory to which no other user can
write. The file's name is a digest of all inputs. The file also contains a digest of the program: if the file is
damaged, the program is compiled again.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from securebench.fs.home import home_directory
from securebench.sandboxes.oci.libseccomp import RECIPE, Library, unavailable
from securebench.sandboxes.seccomp_profile import profile
from securebench.sandboxes.spec_rules import granted_capabilities

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from securebench.sandboxes.base import SandboxSpec

_OF_ROOT: Final = Path("/var/cache/securebench/seccomp")
_DIGEST_SIZE: Final = hashlib.sha256().digest_size
_LARGEST: Final = 64 * 1024
"""A size in bytes that no program exceeds: the kernel allows 4,096 instructions of 8 bytes (BPF_MAXINSNS)."""
_WRITABLE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class Seccomp:
    """A filter in two forms: ``bpf``, the program for the kernel, and ``document``, OCI's ``seccomp`` profile."""

    bpf: bytes
    document: Mapping[str, Any]


def seccomp_for(spec: SandboxSpec, directory: Path | None = None, *, keep: bool = True) -> Seccomp:
    """Return the seccomp filter for a sandbox of ``spec``.

    With ``keep``, the filter is cached in ``directory``, by default :func:`cache_directory`.

    Raises :class:`EngineError` (``seccomp-unavailable``) if the filter cannot be compiled.
    """
    return _seccomp(tuple(granted_capabilities(spec)), (directory or cache_directory()) if keep else None)


def cache_directory() -> Path:
    """Return the directory of cached filters."""
    if os.geteuid() == 0:
        return _OF_ROOT
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base.startswith("/") else home_directory() / ".cache") / "securebench" / "seccomp"


@cache
def _seccomp(capabilities: tuple[str, ...], directory: Path | None) -> Seccomp:
    machine = os.uname().machine
    try:
        document = profile(machine, capabilities)
    except KeyError:
        raise unavailable(f"there is no profile for {machine}", "use the docker driver") from None
    library = Library()
    key = hashlib.sha256(json.dumps([document, library.version, RECIPE]).encode()).hexdigest()
    program = _read(directory, key) if directory else None
    if program is None:
        program = library.compile(document)
        if directory:
            with suppress(OSError):  # without the file, the next process compiles the filter again
                _write(directory, key, program)
    return Seccomp(program, document)


def _read(directory: Path, name: str) -> bytes | None:
    """Return the cached program ``name``, or ``None`` if it is missing, damaged or not protected from other users."""
    try:
        _require_private(directory.lstat(), stat.S_ISDIR)
        descriptor = os.open(directory / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor
            _require_private(os.fstat(descriptor), stat.S_ISREG)
            data = file.read(_LARGEST)
    except OSError:
        return None
    digest, program = data[:_DIGEST_SIZE], data[_DIGEST_SIZE:]
    return program if program and hashlib.sha256(program).digest() == digest else None


def _write(directory: Path, name: str, program: bytes) -> None:
    """Cache ``program`` atomically. Raises ``OSError``, for example if other users can write to the directory."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    _require_private(directory.lstat(), stat.S_ISDIR)
    descriptor, temporary = tempfile.mkstemp(dir=directory)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor
            file.write(hashlib.sha256(program).digest() + program)
        Path(temporary).replace(directory / name)
    except OSError:
        Path(temporary).unlink()
        raise


def _require_private(status: os.stat_result, is_kind: Callable[[int], bool]) -> None:
    mine = status.st_uid == os.geteuid() and not status.st_mode & _WRITABLE_BY_OTHERS
    if not (mine and is_kind(status.st_mode)):
        raise PermissionError(errno.EPERM, "not a private file or directory of this user")
