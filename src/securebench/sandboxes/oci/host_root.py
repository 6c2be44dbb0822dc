"""A root file system without an image: the programs of the host, read-only, and nothing else of it."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from securebench.sandboxes.base import Mount

if TYPE_CHECKING:
    from collections.abc import Iterator

_PROGRAMS: Final = ("bin", "lib", "lib32", "lib64", "sbin", "usr")
_PLACES: Final = ("dev", "etc", "proc", "sys", "tmp")
_FILES: Final = ("dev/init", "etc/hosts", "etc/resolv.conf")
"""What is mounted upon: whose root it becomes cannot make them."""


@contextmanager
def host_root(host: Path = Path("/")) -> Iterator[tuple[Path, tuple[Mount, ...]]]:
    """Give a directory to be a sandbox's root, with what is to be mounted in it. It is removed afterwards.

    The host's root itself would not do: in a user namespace the kernel keeps what is mounted below it in its place.
    """
    with tempfile.TemporaryDirectory(prefix="securebench-root-") as name:
        root = Path(name)
        root.chmod(0o755)
        for place in _PLACES:
            _make_directory(root / place)
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
    """Make a directory that a sandbox's users may enter, whatever the umask is."""
    path.mkdir()
    path.chmod(0o755)
