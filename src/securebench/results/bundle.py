"""A bundle: the files of a run or a suite that a reader needs, in one archive that ``tar`` unpacks.

For each run, it has ``run.json``, the records, the sealed candidates and trajectories that they name, the egress
logs, and signatures. For a suite, it also has ``suite.json`` and its signatures. It has no other files: no workspaces,
and no commitment key. Order, modes, owners and times are fixed, so two bundles of the same run are identical.
"""

from __future__ import annotations

import os
import re
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from typing import IO, TYPE_CHECKING, Final, NamedTuple

from securebench.candidates.store import CANDIDATES
from securebench.errors import ConfigError, SourceLocation
from securebench.fs.streams import chunks
from securebench.fs.tar_writer import TarWriter
from securebench.results.attestation import signature_files
from securebench.results.read import read_run
from securebench.results.records.trajectory import TRAJECTORIES
from securebench.results.run_directory.closing import is_log
from securebench.results.run_directory.files import SUITE, opened_run_file
from securebench.results.run_directory.header import HEADER
from securebench.results.run_directory.lock import reading
from securebench.results.suite import read_suite, started_runs
from securebench.strict_input.files import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from securebench.results.read import RecordedRun

_RUN_FILES: Final = (HEADER, *signature_files("run"))
_SUITE_FILES: Final = (SUITE, *signature_files("suite"))
_NAME: Final = 80
"""Maximum length of the name of the directory in the archive, in characters."""


@dataclass(frozen=True, slots=True)
class Bundled:
    """What a bundle contains. ``bytes`` is the size of its files, ``digest`` the SHA-256 (hex) of the tar archive."""

    runs: int
    candidates: int
    bytes: int
    digest: str


class _File(NamedTuple):
    """A file to bundle.

    ``directory`` is the directory of a run or a suite. ``folder`` is empty for a file directly in ``directory``.
    """

    directory: Path
    folder: str
    name: str

    def opened(self) -> AbstractContextManager[IO[bytes]]:
        if self.folder:
            return opened_run_file(self.directory, self.folder, self.name)
        return open_regular(self.directory / self.name, "file of the run")

    def content(self, file: IO[bytes], size: int) -> Iterator[bytes]:
        """Yield the content. Raises :class:`ConfigError` (``run-active``) if the file does not have ``size`` bytes."""
        found = 0
        for piece in chunks(file):
            found += len(piece)
            if found > size:
                break
            yield piece
        if found != size:
            where = SourceLocation(str(self.directory / self.folder / self.name))
            raise ConfigError("the file changed while it was read", code="run-active", hint="try again", location=where)


def write_bundle(directory: Path, output: IO[bytes]) -> Bundled:
    """Write the run or the suite in ``directory`` as a tar archive. No run may write to this directory meanwhile.

    Raises :class:`ConfigError`: ``run-active`` for a run in progress or a file that changes meanwhile,
    ``candidate-not-stored``, ``file-not-regular`` for links and special files, and the errors of :func:`read_suite`,
    :func:`read_run` and :meth:`RecordedRun.records`.
    """
    root = directory.resolve()
    suite = read_suite(root)
    if suite is None:
        read_run(directory)  # a directory that is missing, or has no run, is reported as such before it is locked
    runs = started_runs(root, suite) if suite else {"": root}
    with ExitStack() as stack:
        for place in {root, *runs.values()}:
            stack.enter_context(reading(place))
        opened = {path: read_run(place) for path, place in runs.items()}
        top = _name(suite.id if suite else opened[""].run_id)
        names = [name for name in _SUITE_FILES if os.path.lexists(root / name)] if suite else []
        files = {f"{top}/{name}": _File(root, "", name) for name in names}
        for path, run in opened.items():
            prefix = f"{top}/{path}/" if path else f"{top}/"
            files |= {f"{prefix}{file.folder}{'/' if file.folder else ''}{file.name}": file for file in _files(run)}
        written, digest = _write(files, output)
    return Bundled(len(runs), sum(file.folder == CANDIDATES for file in files.values()), written, digest)


def _name(run_id: str) -> str:
    """Return a safe name for the directory in the archive, because a stranger may have chosen the id."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", run_id).strip("-")[:_NAME] or "run"


def _files(run: RecordedRun) -> Iterator[_File]:
    directory = run.directory.resolve()
    names = [path.name for path in directory.iterdir()]
    yield from (_File(directory, "", name) for name in names if name in _RUN_FILES or is_log(name))
    candidates, trajectories = set[str](), set[str]()
    for record in chain(run.records(), run.superseded()):
        if record.candidate_digest:
            candidates.add(record.candidate_digest)
        trajectories.update(record.trajectories)
    for digest in candidates:
        if not os.path.lexists(directory / CANDIDATES / digest):
            raise ConfigError(
                "the sealed candidate is missing",
                code="candidate-not-stored",
                hint="bundle the complete run directory",
                location=SourceLocation(str(run.directory / CANDIDATES / digest)),
            )
        yield _File(directory, CANDIDATES, digest)
    for name in trajectories:
        if os.path.lexists(directory / TRAJECTORIES / name):  # the owner of a run may remove trajectories
            yield _File(directory, TRAJECTORIES, name)


def _write(files: dict[str, _File], output: IO[bytes]) -> tuple[int, str]:
    """Write the archive. Return the size of all files in bytes, and the digest of the archive."""
    written, made = 0, set[str]()
    with TarWriter(output) as archive:
        for path in sorted(files):
            for end in (at for at, char in enumerate(path) if char == "/"):
                if path[:end] not in made:
                    made.add(path[:end])
                    archive.directory(os.fsencode(path[:end]))
            with files[path].opened() as file:
                size = os.fstat(file.fileno()).st_size
                archive.file(os.fsencode(path), size, files[path].content(file, size))
            written += size
    return written, archive.digest
