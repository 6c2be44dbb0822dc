"""A root file system without an image: the host's programs, read-only, and none of its other files."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from securebench.sandboxes.base import Mount

if TYPE_CHECKING:
    from collections.abc import Iterator

_PROGRAMS: Final = ("bin", "lib", "lib32", "lib64", "sbin", "usr")
_DIRECTORIES: Final = ("dev", "etc", "proc", "sys", "tmp")
_FILES: Final = ("dev/init", "etc/hosts", "etc/resolv.conf")
"""Mount points. They must exist, because a sandbox cannot create them in its read-only root."""


@contextmanager
def host_root(host: Path = Path("/")) -> Iterator[tuple[Path, tuple[Mount, ...]]]:
    """Yield a directory for use as a sandbox's root, and the mounts that it needs. It is removed afterwards.

    The host's root itself cannot be used: in a user namespace, the kernel does not allow separating it from the mounts
    below it.
    """
    with tempfile.TemporaryDirectory(prefix="securebench-root-") as name:
        root = Path(name)
        root.chmod(0o755)
        for directory in _DIRECTORIES:
            _make_directory(root / directory)
        for file in _FILES:
            (root / file).touch()
            (root / file).chmod(0o644)
        yield root, tuple(_programs(host, root))


def _programs(host: Path, root: Path) -> Iterator[Mount]:
    for part in _PROGRAMS:
        source = host / part
        if source.is_symlink():
            (root / part).symlink_to(source.readlink())
        elif source.is_dir():
            _make_directory(root / part)
            yield Mount(source, f"/{part}")


def _make_directory(path: Path) -> None:
    """Create a directory that a sandbox's users can enter, whatever the umask."""
    path.mkdir()
    path.chmod(0o755)
