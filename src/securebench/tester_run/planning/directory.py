"""The run directory: which run it belongs to, and whether it has space."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from securebench.candidates.store import CANDIDATES, CandidateStore
from securebench.errors import ConfigError, Problem, SourceLocation, StorageError
from securebench.fs.durable import make_directories, storage_errors, sync_name, temporary_name
from securebench.fs.rmtree import make_private_directory, remove_private_directory, remove_tree
from securebench.results.records.commitment import KEY_FILE
from securebench.results.records.record import VerificationStatus
from securebench.results.run_directory.closing import file_digests
from securebench.results.run_directory.files import JOURNAL
from securebench.results.run_directory.header import HEADER, read_header
from securebench.results.run_directory.lock import OWNER_FILE
from securebench.results.run_directory.source import SOURCE_FILE
from securebench.tasks import CandidateKind
from securebench.tester_run.agent_copy import AGENT_COPY
from securebench.workspaces.bounded import BOUNDED_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from securebench.results.records.record import RecordEntry
    from securebench.results.run_directory.header import RunHeader
    from securebench.tester_config import KeepWorkspaces
    from securebench.trials import TrialId

MIN_FREE: Final = 32 * 1024 * 1024
"""Bytes that must be free when a run begins."""

WORKSPACES: Final = "workspaces"
SCRATCH: Final = "scratch"
TRACE: Final = "agent-trace.log"
VERIFIER_OUTPUT: Final = "verifier-output"


_STEADY_UMASK: Final = 0o022


def make_directory(directory: Path) -> None:
    """Create the run directory and its parents. Whatever the umask is, only this user may write to a new run directory.

    Raises :class:`ConfigError` (``output-dir-unusable``) if it is not a directory or this user may not use it, and
    :class:`StorageError` if it cannot be created for another reason.
    """
    try:
        if directory.exists() and not directory.is_dir():
            raise _unusable(f"{directory} is not a directory")
        if directory.exists():
            sync_name(directory)  # the program that created it may not have done so
        else:
            make_directories(directory)
            directory.chmod((directory.stat().st_mode | stat.S_IRWXU) & ~_STEADY_UMASK)
        if not os.access(directory, os.R_OK | os.W_OK | os.X_OK, effective_ids=True):
            raise _unusable(f"you need permission to read, write and enter {directory}")
    except OSError as error:
        if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP}:
            raise _unusable(f"{directory} cannot be used: {error.strerror}") from error
        with storage_errors(directory):
            raise


@contextmanager
def steady_umask() -> Iterator[None]:
    """Set the umask 022 in this block. It applies to the whole process.

    Sandboxes run as other users. With umask 077 they could not read the files that the run creates for them. Private
    files are protected by their directories.
    """
    before = os.umask(_STEADY_UMASK)
    try:
        yield
    finally:
        os.umask(before)


def earlier_header(directory: Path, *, resume: bool) -> RunHeader | None:
    """Return the header of the run to resume, or ``None`` if a run begins here.

    Raises :class:`ConfigError` if the directory has a run and ``resume`` is off, or if it has other files but no run.
    """
    header = read_header(directory)
    if header is not None and not resume:
        raise ConfigError(
            f"{directory} already contains a run",
            code="output-dir-in-use",
            hint="pass --resume to continue it, or choose another --output-dir",
        )
    if header is None and (found := _foreign(directory)):
        raise ConfigError(
            f"{directory} is not empty and not a run directory: it contains {', '.join(found)}",
            code="output-dir-in-use",
            hint=_missing_header_hint(found),
        )
    return header


def require_space(directory: Path) -> None:
    """Raise :class:`StorageError` if there is not enough disk space to begin."""
    with storage_errors(directory):
        free = shutil.disk_usage(directory).free
    if free < MIN_FREE:
        raise StorageError(
            f"{directory} has {free // 1024} KiB free; a run needs {MIN_FREE // 1024} KiB",
            hint="free some space, or choose another --output-dir",
        )


def make_room(directory: Path) -> None:
    """Create the directories of a run, and remove unfinished files of a killed run."""
    make_private_directory(directory / WORKSPACES)
    clear_scratch(directory)
    make_private_directory(directory / SCRATCH)
    store = candidate_store(directory)
    store.make()
    store.clear_unfinished()


def remove_workspaces(directory: Path, keep: KeepWorkspaces, entries: Mapping[TrialId, RecordEntry]) -> None:
    """Remove the workspaces that are not to be kept, and the mount points of workspaces that a killed run left.

    Raises the errors of :func:`remove_tree`.
    """
    passed = {trial.directory for trial, entry in entries.items() if entry.status is VerificationStatus.PASSED}
    for path in [path for path in (directory / WORKSPACES).iterdir() if path.is_dir()]:
        if path.name.endswith(BOUNDED_SUFFIX) or not keep.keeps(passed=path.name in passed):
            remove_tree(path)


def candidate_store(directory: Path) -> CandidateStore:
    """Return the candidate store of a run."""
    return CandidateStore(directory / CANDIDATES)


def require_candidates(directory: Path, entries: Iterable[RecordEntry]) -> None:
    """Raise :class:`ConfigError` if a record is not an error and its sealed candidate is missing or was altered."""
    store, checked, problems = candidate_store(directory), set[str](), list[Problem]()
    for entry in entries:
        digest = entry.candidate_digest
        if entry.status is VerificationStatus.ERROR or digest is None or digest in checked:
            continue
        checked.add(digest)
        try:
            store.load(CandidateKind.WORKSPACE, digest)  # whatever its kind: a workspace is not kept in memory
        except StorageError as error:
            hint = "restore the directory from a copy, or start a new run in another --output-dir"
            problems.append(Problem(error.code, f"task {entry.task_id!r}: {error.message}", hint=hint))
    if problems:
        raise ConfigError(problems=problems)


def require_logs(directory: Path, header: RunHeader) -> None:
    """Raise :class:`ConfigError` (``closing-mismatch``) if a log of a closed run was changed, added or removed."""
    if header.closing is None:
        return
    found = file_digests(directory)
    for name in sorted({*header.closing.files, *found}):
        if header.closing.files.get(name) != found.get(name):
            raise ConfigError(
                f"{name} was changed, added or removed after the run was closed",
                code="closing-mismatch",
                hint="restore the directory from a copy, or start a new run in another --output-dir",
                location=SourceLocation(str(directory / name)),
            )


def clear_scratch(directory: Path) -> None:
    """Remove ``scratch/``, because files of verifiers in it contain evaluation inputs."""
    remove_private_directory(directory / SCRATCH)


def _unusable(problem: str) -> ConfigError:
    return ConfigError(problem, code="output-dir-unusable", hint="choose another --output-dir")


def _foreign(directory: Path) -> list[str]:
    """Return up to five names in ``directory``, without those of files that a run creates before its header.

    These files remain if a run is killed before it has written its header.
    """
    files = (HEADER, KEY_FILE, SOURCE_FILE)
    ours = {OWNER_FILE, AGENT_COPY, *files, *(temporary_name(directory / name).name for name in files)}
    return sorted(path.name for path in directory.iterdir() if path.name not in ours)[:5]


def _missing_header_hint(found: list[str]) -> str:
    if JOURNAL in found:
        return f"{HEADER} is missing, so it is unknown to which run the records belong: choose another --output-dir"
    return "choose an empty or new --output-dir"
