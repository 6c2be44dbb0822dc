"""What a process leaves when it is killed: run directories, temporary directories and cgroups.

They are labeled with the process that owns them, and removed when it is gone.

If a driver is killed, its supervisor removes the run directory and the cgroups automatically. If the supervisor was
killed too, the kernel kills all processes in its pid namespace. The next run then removes the cgroups and the run
directory, on which the supervisor's file system was mounted.

In this module, a run directory is a driver's directory in :func:`runs_directory`. It contains no records.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from securebench.errors import EngineError
from securebench.sandboxes.oci.supervisor.cgroups import NAMESPACE, find_group_directories, kill_all, remove_group
from securebench.sandboxes.oci.supervisor.context import OWNER_FILE
from securebench.sandboxes.owner import Owner

if TYPE_CHECKING:
    from collections.abc import Iterator

_REMOVAL_SECONDS: Final = 5.0
_RETRY_SECONDS: Final = 0.01
_TEMPORARY: Final = "securebench-root-"


def runs_directory() -> Path:
    """Return the directory that contains all run directories of this user. It may not exist yet."""
    if os.geteuid() == 0:
        return Path("/run/securebench")
    given = os.environ.get("XDG_RUNTIME_DIR", "")
    if given.startswith("/") and Path(given).is_dir():
        return Path(given, "securebench")
    return Path(tempfile.gettempdir(), f"securebench-{os.getuid()}").resolve()


def make_run_directory(token: str, parent: Path | None = None) -> tuple[Path, str]:
    """Create a run directory for this process. Return the directory and the name for its cgroups.

    Raises :class:`EngineError` (``sandbox-unavailable``) if the directory cannot be created safely.
    """
    parent = runs_directory() if parent is None else parent
    label = Owner.current().label()
    try:
        _make_private(parent)
        fresh = Path(tempfile.mkdtemp(prefix=".", dir=parent))
        (fresh / OWNER_FILE).write_text(label)
        fresh.chmod(0o711)  # root in a sandbox, who has no privileges on the host, must be able to traverse it
        run = fresh.rename(parent / token)  # the directory never appears without its owner file
    except OSError as error:
        raise EngineError(
            f"cannot create files for sandboxes in {parent}: {error}",
            code="sandbox-unavailable",
            hint=f"check the owner and the free space of {parent}; users other than root can set XDG_RUNTIME_DIR",
        ) from error
    return run, f"{token}.{label.replace('/', '.')}"


@contextmanager
def temporary_directory() -> Iterator[Path]:
    """Yield an empty directory. Remove it afterwards or, if this process is killed, at the next :func:`reap`."""
    label = Owner.current().label().replace("/", ".")
    with tempfile.TemporaryDirectory(prefix=_TEMPORARY, suffix=f".{label}") as name:
        yield Path(name)


def reap(parent: Path | None = None) -> int:
    """Remove the run directories, temporary directories and cgroups of processes that are gone.

    Return the number of removed run directories and cgroups.
    """
    found = [path for path in _entries(runs_directory() if parent is None else parent) if _is_gone(_owner_in(path))]
    for path in (*found, *(path for path in _temporary() if _is_gone(_owner_of(path)))):
        shutil.rmtree(path, ignore_errors=True)
    groups = [group for group in _groups() if _is_gone(_owner_of(group))]
    return len(found) + sum(remove_tree_of_groups(group) for group in groups)


def remove_run(run: Path, group: str) -> None:
    """Remove what a driver created and its supervisor has not removed. The driver's sandboxes must have ended."""
    for path in _groups():
        if path.name == group:
            remove_tree_of_groups(path)
    shutil.rmtree(run, ignore_errors=True)


def remove_tree_of_groups(group: Path) -> bool:
    """Kill all processes in the cgroup ``group`` and below, and remove these cgroups. Return whether they are gone."""
    deadline = time.monotonic() + _REMOVAL_SECONDS
    while True:
        directories = [path for path, _, _ in os.walk(group, topdown=False)]
        for directory in directories:
            kill_all(directory)
        gone = [remove_group(directory) for directory in directories]
        if all(gone) or time.monotonic() > deadline:
            return all(gone)
        time.sleep(_RETRY_SECONDS)


def _make_private(directory: Path) -> None:
    """Create ``directory``, or check that only this user can write to it. Raises ``OSError``."""
    with suppress(FileExistsError):
        directory.mkdir(mode=0o711, parents=True)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise PermissionError(f"{directory} is not a directory to which only this user can write")


def _temporary() -> Iterator[Path]:
    """Yield this user's temporary directories. Directories of other users with the same prefix are left out."""
    for path in _entries(Path(tempfile.gettempdir())):
        if path.name.startswith(_TEMPORARY):
            with suppress(FileNotFoundError):
                if path.stat().st_uid == os.geteuid():
                    yield path


def _groups() -> Iterator[Path]:
    for directory in find_group_directories():
        yield from _entries(Path(directory, NAMESPACE))


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(path for path in directory.iterdir() if path.is_dir() and not path.is_symlink())
    except OSError:
        return []


def _owner_in(run: Path) -> Owner | None:
    try:
        return Owner.parse((run / OWNER_FILE).read_text())
    except (OSError, UnicodeDecodeError):
        return None


def _owner_of(named: Path) -> Owner | None:
    """Return the owner whose label is at the end of ``named``, the path of a cgroup or temporary directory."""
    return Owner.parse(named.name.partition(".")[2].replace(".", "/"))


def _is_gone(owner: Owner | None) -> bool:
    """Whether ``owner`` is certainly gone. ``False`` if it is ``None``, or may be running in another pid namespace."""
    if owner is None:
        return False
    return not owner.is_of_this_boot() or (owner.can_be_judged() and not owner.is_alive())
