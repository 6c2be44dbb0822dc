"""The run directory: whose it is, and whether there is room in it."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from securebench.candidates.store import CandidateStore
from securebench.errors import ConfigError, Problem, StorageError
from securebench.fs.durable import storage_errors, temporary_name
from securebench.fs.rmtree import MARKER, make_private_directory, remove_tree
from securebench.results.commitment import KEY_FILE
from securebench.results.journal import JOURNAL
from securebench.results.lock import OWNER_FILE
from securebench.results.record import VerificationStatus
from securebench.results.run_header import HEADER, read_header
from securebench.tasks import CandidateKind
from securebench.tester_run.agent_copy import AGENT_COPY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from securebench.results.record import RecordEntry
    from securebench.results.run_header import RunHeader

MIN_FREE: Final = 32 * 1024 * 1024
"""Bytes that must be free before a run begins."""

WORKSPACES: Final = "workspaces"
SCRATCH: Final = "scratch"
CANDIDATES: Final = "candidates"
TRACE: Final = "agent-trace.log"
VERIFIER_OUTPUT: Final = "verifier-output"


_STEADY_UMASK: Final = 0o022


def make_directory(directory: Path) -> None:
    """Make the run directory, and its parents. Nobody else may write to one that is made here, whatever the umask is.

    Raises :class:`ConfigError` (``output-dir-unusable``) if it is something else, or this user may not use it.
    """
    try:
        if directory.exists() and not directory.is_dir():
            raise _unusable(f"{directory} is not a directory")
        if not directory.exists():
            directory.mkdir(parents=True, exist_ok=True)
            directory.chmod((directory.stat().st_mode | stat.S_IRWXU) & ~_STEADY_UMASK)
        if not os.access(directory, os.R_OK | os.W_OK | os.X_OK, effective_ids=True):
            raise _unusable(f"this user may not write to {directory}")
    except OSError as error:
        if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP}:
            raise _unusable(f"{directory} cannot be used: {error.strerror}") from error
        with storage_errors(directory):
            raise


@contextmanager
def steady_umask() -> Iterator[None]:
    """Give new files the usual modes in this block, whatever the umask of who started the run is.

    Sandboxes run as other users: under umask 077 they could not read what is laid out for them. What should be private
    lies in directories that are. The umask is the whole process's.
    """
    before = os.umask(_STEADY_UMASK)
    try:
        yield
    finally:
        os.umask(before)


def earlier_header(directory: Path, *, resume: bool) -> RunHeader | None:
    """Return the header of the run that is to be resumed, or ``None`` when a run begins here.

    Raises :class:`ConfigError` for a directory that is in use and is not to be, or cannot be, resumed.
    """
    header = read_header(directory)
    if header is not None and not resume:
        raise ConfigError(
            f"{directory} holds a run already",
            code="output-dir-in-use",
            hint="pass --resume to continue it, or choose another --output-dir",
        )
    if header is None and (found := _foreign(directory)):
        raise ConfigError(
            f"{directory} is not empty, and is not the directory of a run: it holds {', '.join(found)}",
            code="output-dir-in-use",
            hint=_missing_header_hint(found),
        )
    return header


def require_space(directory: Path) -> None:
    """Raise :class:`StorageError` if there is too little room to begin."""
    with storage_errors(directory):
        free = shutil.disk_usage(directory).free
    if free < MIN_FREE:
        raise StorageError(
            f"{directory} has {free // 1024} KiB free; a run needs {MIN_FREE // 1024} KiB to begin",
            hint="free some space, or choose another --output-dir",
        )


def make_room(directory: Path) -> CandidateStore:
    """Make the directories of a run, clear what a killed run was in the middle of, and return the store."""
    make_private_directory(directory / WORKSPACES)
    clear_scratch(directory)
    make_private_directory(directory / SCRATCH)
    store = CandidateStore(directory / CANDIDATES)
    store.clear_unfinished()
    return store


def require_candidates(directory: Path, entries: Iterable[RecordEntry]) -> None:
    """Raise :class:`ConfigError` for each record with a verdict whose sealed candidate is gone or was altered."""
    store, checked, problems = CandidateStore(directory / CANDIDATES), set[str](), list[Problem]()
    for entry in entries:
        digest = entry.candidate_digest
        if entry.status is VerificationStatus.ERROR or digest is None or digest in checked:
            continue
        checked.add(digest)
        try:
            store.load(CandidateKind.WORKSPACE, digest)  # whatever it is: of this kind nothing is kept in memory
        except StorageError as error:
            hint = "restore the directory from a copy, or start again in another --output-dir"
            problems.append(Problem(error.code, f"task {entry.task_id!r}: {error.message}", hint=hint))
    if problems:
        raise ConfigError(problems=problems)


def clear_scratch(directory: Path) -> None:
    """Remove what verifiers left: it holds evaluation inputs."""
    scratch = directory / SCRATCH
    if scratch.is_dir():
        for path in [path for path in scratch.iterdir() if path.name != MARKER]:
            remove_tree(path)
        with storage_errors(scratch):
            (scratch / MARKER).unlink(missing_ok=True)
            scratch.rmdir()


def _unusable(problem: str) -> ConfigError:
    return ConfigError(problem, code="output-dir-unusable", hint="choose another --output-dir")


def _foreign(directory: Path) -> list[str]:
    """Return the names of some things in ``directory`` that a run which was killed before it began does not leave."""
    ours = {OWNER_FILE, AGENT_COPY, KEY_FILE, *(temporary_name(directory / name).name for name in (HEADER, KEY_FILE))}
    return sorted(path.name for path in directory.iterdir() if path.name not in ours)[:5]


def _missing_header_hint(found: list[str]) -> str:
    if JOURNAL in found:
        return f"{HEADER} is missing, so nothing says what its records belong to: choose another --output-dir"
    return "choose an empty or new --output-dir"
