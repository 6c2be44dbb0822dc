"""``suite.json``: the runs in the output directory of a suite."""

from __future__ import annotations

import json
import os
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from securebench.errors import ConfigError
from securebench.fs.durable import write_durably
from securebench.results.read import read_run
from securebench.results.records.strict_json import require_written_form, strict_loads
from securebench.results.run_directory.files import SUITE
from securebench.results.run_directory.header import HEADER
from securebench.strict_input.files import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from securebench.results.read import RecordedRun

SUITE_VERSION: Final = 1
_MAX_NAME: Final = 255
_MAX_PATH: Final = 1024
_MAX_BYTES: Final = 16 * 1024 * 1024


class RecordedSuite(NamedTuple):
    """A suite on disk. ``runs`` maps the path of each run, relative to the suite's directory, to its description."""

    id: str
    runs: Mapping[str, Mapping[str, Any]]

    def to_bytes(self) -> bytes:
        """Return the bytes of ``suite.json``."""
        runs = {path: dict(description) for path, description in self.runs.items()}
        content = {"suite_version": SUITE_VERSION, "id": self.id, "runs": runs}
        return (json.dumps(content, indent=2) + "\n").encode("ascii")


def write_suite(directory: Path, suite: RecordedSuite) -> None:
    """Write ``suite.json``. Raises :class:`StorageError`."""
    write_durably(directory / SUITE, suite.to_bytes())


def read_suite(directory: Path) -> RecordedSuite | None:
    """Return the suite in ``directory``; ``None`` if it is not the directory of a suite.

    Raises :class:`ConfigError` (``suite-damaged``, ``file-not-regular``, ``file-unreadable``).
    """
    try:
        with open_regular(directory / SUITE, "suite") as file:
            data = file.read(_MAX_BYTES + 1)
    except ConfigError as error:
        if error.code == "file-missing":
            return None
        raise
    if os.path.lexists(directory / HEADER):
        raise _damaged(directory, f"its directory also contains {HEADER}, which belongs only in the directory of a run")
    try:
        return _suite(data)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise _damaged(directory, str(error)) from error


def _damaged(directory: Path, why: str) -> ConfigError:
    hint = "restore it, or pass the directories of the runs instead"
    return ConfigError(f"{directory / SUITE} is damaged: {why}", code="suite-damaged", hint=hint)


def read_runs(directory: str | Path) -> list[RecordedRun]:
    """Open a run, or the started runs of a suite. Raises the errors of :func:`read_suite` and :func:`read_run`."""
    suite = read_suite(Path(directory))
    if suite is None:
        return [read_run(directory)]
    return [read_run(run) for run in started_runs(Path(directory), suite).values()]


def started_runs(directory: Path, suite: RecordedSuite) -> dict[str, Path]:
    """Return the directories of the started runs of a suite. The keys are the paths of the runs in ``suite.json``."""
    runs = {path: _inside(directory, path) for path in suite.runs}
    return {path: run for path, run in runs.items() if (run / HEADER).is_file()}


def missing_runs(directory: Path, suite: RecordedSuite) -> list[str]:
    """Return the paths of the runs of a suite that were not started."""
    return [path for path in suite.runs if not (_inside(directory, path) / HEADER).is_file()]


def read_all(directories: Iterable[str | Path]) -> list[RecordedRun]:
    """Open the runs in all ``directories``, in their order. Raises the errors of :func:`read_runs`."""
    return [run for directory in directories for run in read_runs(directory)]


def _inside(directory: Path, path: str) -> Path:
    """Return the directory of a run. No part of its path in the suite may be a link."""
    run = directory / path
    if run.resolve() != directory.resolve() / path:
        raise ConfigError(
            f"{run} is a link, or its path contains one",
            code="suite-damaged",
            hint="pass the directory of the run instead",
        )
    return run


def _has_names_of_files(path: str) -> bool:
    """Return whether ``path`` could exist: each part is a possible file name, and the whole is not too long."""
    data = path.encode("utf-8", "replace")
    parts = data.split(b"/")
    return data.decode() == path and b"\0" not in data and len(data) < _MAX_PATH and max(map(len, parts)) <= _MAX_NAME


def _suite(data: bytes) -> RecordedSuite:
    """Parse ``suite.json``, which may come from a stranger. Paths that lead out of its directory are refused."""
    if len(data) > _MAX_BYTES:
        raise ValueError(f"it has more than {_MAX_BYTES} bytes")
    content = strict_loads(data)
    if content["suite_version"] != SUITE_VERSION:
        raise ValueError(f"expected version {SUITE_VERSION}, got {content['suite_version']!r}")
    runs: Any = content["runs"]
    if not isinstance(runs, dict) or not runs:
        raise TypeError("'runs' is not an object with at least one run")
    for path, description in runs.items():
        pure = PurePosixPath(path)
        # Other forms of a path, such as a//b, could name the same run twice.
        is_plain = pure.parts and str(pure) == path and not pure.is_absolute() and ".." not in pure.parts
        if not is_plain or not _has_names_of_files(path):
            raise ValueError(f"{path[:200]!r} is not a plain relative path")
        if not isinstance(description, dict):
            raise TypeError(f"the description of {path[:200]!r} is not an object")
    suite = RecordedSuite(content["id"], runs)
    require_written_form(data, suite.to_bytes())
    return suite
