"""What this process has left on the machine: containers, processes, mounts, cgroups and run directories.

A trace is a line of text that names one such thing. A test leaves nothing if the traces before and after it are equal.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from securebench.errors import SecureBenchError
from securebench.sandboxes.docker.driver import OWNER_LABEL
from securebench.sandboxes.owner import Owner

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from securebench.engine.client import Engine
    from securebench.images.store.image_store import ImageStore

_CGROUPS = Path("/sys/fs/cgroup")
_PROC = Path("/proc")
_SPARE = "spare-"
"""The prefix of the cgroups that an open driver keeps ready for its next sandboxes, inside its own cgroup."""
_OF_ENGINES = "/merged/"
"""Part of the path of an engine's mount for a container. Such mounts are skipped: the container itself is a trace."""
_OF_RUNTIMES = "crun.??????"
"""The pattern of the names of files that crun creates for a moment when it starts."""


class _Process(NamedTuple):
    """A process: its parent, and its start time, by which it differs from a later process with the same pid."""

    parent: int
    start: str


def remove_images(store: ImageStore, references: Iterable[str]) -> list[str]:
    """Remove images that tests made, and return what went wrong instead of raising it.

    After an interrupt an image may not exist yet, or a driver may still use it. Another test run on this machine may
    use an image of the same content. An image in use loses its name, and the next prune removes it.
    """
    problems = []
    for reference in references:
        try:
            store.remove(reference)
        except SecureBenchError as error:
            if error.code == "image-in-use":
                store.forget(reference)
            elif error.code != "image-unavailable":
                problems.append(f"the image {reference} was not removed: {error.message}")
        except OSError as error:
            problems.append(f"the image {reference} was not removed: {error}")
    return problems


def container_traces(engine: Engine) -> set[str]:
    """Return a trace of each container that this process owns."""
    label = f"{OWNER_LABEL}={Owner.current().label()}"
    return {f"container {entry['Id']}" for entry in engine.client.containers(all=True, filters={"label": label})}


def host_traces() -> set[str]:
    """Return the traces on this host, without the directories and cgroups of other processes that are still running.

    The process table is read only once, because this runs before and after each test on a sandbox.
    """
    cgroups_found = list(_cgroups())
    run_directories = list(_run_directories())
    table = _process_table()
    family = _below(os.getpid(), table)
    foreign = {directory.name for directory in run_directories if _is_foreign(directory, family)}
    directories = {f"directory {path}" for path in run_directories if path.name not in foreign}
    # A driver removes its cgroups before its directory. If the directory of another driver was removed before it was
    # listed above, that driver's cgroups were listed but no longer exist, so they are not counted.
    cgroups = {
        f"cgroup {path}"
        for path in cgroups_found
        if foreign.isdisjoint(part.partition(".")[0] for part in path.parts) and path.exists()
    }
    return directories | cgroups | runtime_files() | set(_mounts()) | set(_descendants(family, table))


def runtime_files() -> set[str]:
    """Return a trace of each temporary file of this user's runtimes, whichever process started the runtime."""
    places = {Path("/tmp"), Path("/var/tmp"), Path(tempfile.gettempdir())}
    found = set()
    for path in (path for place in places for path in place.glob(_OF_RUNTIMES)):
        with suppress(FileNotFoundError):  # it was removed meanwhile
            if path.lstat().st_uid == os.geteuid():
                found.add(f"file {path}")
    return found


def _run_directories() -> Iterator[Path]:
    """Yield the run directories of oci drivers, from all places where a driver of this user may create them."""
    places = {Path("/run"), Path(os.environ.get("XDG_RUNTIME_DIR") or "/nowhere"), Path(tempfile.gettempdir())}
    for place in places:
        for parent in (place / "securebench", place / f"securebench-{os.getuid()}"):
            if os.access(parent, os.R_OK | os.X_OK):
                yield from (path for path in parent.iterdir() if (path / "owner").exists())


def _is_foreign(directory: Path, family: set[int]) -> bool:
    """Whether the owner of ``directory`` is running and is not in ``family``: this process and its descendants.

    A directory whose owner file is gone counts as foreign, because it is just being removed.
    """
    try:
        owner = Owner.parse((directory / "owner").read_text().strip())
    except OSError:
        return True
    return owner is not None and owner.is_alive() and owner.pid not in family


def _cgroups() -> Iterator[Path]:
    """Yield the cgroups of this user's sandboxes. Those of other users are skipped: their purpose is unknown."""
    for hierarchy in (_CGROUPS, *(path for path in _CGROUPS.iterdir() if path.is_dir())):
        for directory, names, _ in os.walk(hierarchy / "securebench"):
            for path in (Path(directory, name) for name in names if not name.startswith(_SPARE)):
                with suppress(FileNotFoundError):  # it was removed meanwhile
                    if path.stat().st_uid == os.geteuid():
                        yield path


def _mounts() -> Iterator[str]:
    for line in (_PROC / "self/mountinfo").read_text().splitlines():
        place = line.split()[4]
        if _OF_ENGINES not in place and ("securebench" in place or "/pytest-of-" in place):
            yield f"mount {place}"


def _descendants(family: set[int], table: dict[int, _Process]) -> Iterator[str]:
    """Yield a trace of each descendant of this process, with its start time, because pids are reused."""
    commands = _commands(family - {os.getpid()})
    for pid, command in commands.items():
        # A process without a command line has ended. A process with its parent's command line has forked, but not
        # started a program yet. An open driver keeps spare processes. All of these are skipped.
        if command and command != commands.get(table[pid].parent) and "securebench: spare" not in command:
            yield f"process {pid} started {table[pid].start}: {command[:100]}"


def family_of(pid: int) -> dict[int, str]:
    """Return the descendants of ``pid``: their pids and command lines."""
    return _commands(_below(pid, _process_table()) - {pid})


def _commands(pids: set[int]) -> dict[int, str]:
    found = {}
    for pid in pids:
        with suppress(OSError):  # it has just ended
            found[pid] = (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return found


def _process_table() -> dict[int, _Process]:
    """Return the processes of this machine by pid."""
    table = {}
    for pid in (int(name) for name in os.listdir(_PROC) if name.isdigit()):  # noqa: PTH208 - half the time of iterdir
        with suppress(OSError):  # it has just ended
            fields = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
            table[pid] = _Process(parent=int(fields[1]), start=fields[19])
    return table


def _below(root: int, table: dict[int, _Process]) -> set[int]:
    """Return the pids of ``root`` and all its descendants."""
    family, found = set[int](), {root}
    while found:
        family |= found
        found = {pid for pid, process in table.items() if process.parent in found} - family
    return family
