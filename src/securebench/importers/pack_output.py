"""Writing an imported pack: checked as any pack is, in one piece, and never over something else."""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from securebench.benchmark_compiler import compile_benchmark_pack
from securebench.benchmark_pack import load_benchmark_pack
from securebench.errors import ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from securebench.importers.row import ImportedRow

MANIFEST_NAME: Final = "manifest.yaml"
TASKS_NAME: Final = "tasks.jsonl"


def write_pack(directory: Path, rows: Sequence[ImportedRow], manifest: Mapping[str, Any], *, force: bool) -> Path:
    """Write ``tasks.jsonl`` into ``directory``, and ``manifest`` beside it if there is none; return the tasks file.

    Raises :class:`ConfigError`: ``import-output-exists`` for a tasks file that is there already, unless ``force``;
    ``import-output-unwritable``; and what is wrong with a row, at its place in the authors' data.
    """
    tasks = directory / TASKS_NAME
    if tasks.exists() and not force:
        raise _exists(tasks)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _write_manifest(directory / MANIFEST_NAME, manifest)
        with _draft(directory, "".join(f"{row.line}\n" for row in rows)) as draft:
            _check(directory / MANIFEST_NAME, draft, rows)
            _put(draft, tasks, force=force)
    except OSError as error:
        raise _unwritable(directory, error) from None
    return tasks


def write_text(path: Path, text: str, *, force: bool) -> None:
    """Write a file in one piece. Raises :class:`ConfigError` as :func:`write_pack` does."""
    try:
        with _draft(path.parent, text) as draft:
            _put(draft, path, force=force)
    except OSError as error:
        raise _unwritable(path.parent, error) from None


def _write_manifest(path: Path, manifest: Mapping[str, Any]) -> None:
    """Write a manifest, as JSON, which is YAML too. One that is there is the user's, and stays."""
    if not path.exists():
        write_text(path, json.dumps(manifest, indent=2) + "\n", force=False)


def _check(manifest: Path, draft: Path, rows: Sequence[ImportedRow]) -> None:
    """Load and compile the pack. Problems of rows are moved to where the authors' records stand."""
    try:
        compile_benchmark_pack(load_benchmark_pack(manifest, draft))
    except ConfigError as error:
        problems = [_in_source(problem, draft, rows) for problem in error.problems]
        raise ConfigError(problems=problems) from None


def _in_source(problem: Problem, draft: Path, rows: Sequence[ImportedRow]) -> Problem:
    place = problem.location
    if place is None or place.line is None or Path(place.file) != draft or place.line > len(rows):
        return problem
    row = rows[place.line - 1]
    where = f" ({place.pointer})" if place.pointer else ""
    return Problem(problem.code, f"{row.id}: {problem.message}{where}", row.location, problem.hint)


@contextmanager
def _draft(directory: Path, text: str) -> Iterator[Path]:
    """Write ``text`` to a file of its own beside its destination, and remove that in the end."""
    with tempfile.NamedTemporaryFile("w", dir=directory, prefix=".import-", encoding="utf-8", newline="\n") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
        Path(file.name).chmod(0o644)
        yield Path(file.name)


def _put(draft: Path, path: Path, *, force: bool) -> None:
    """Give ``draft`` the name ``path`` as well, at once: whoever looks sees the old file or the whole new one."""
    if force:
        path.unlink(missing_ok=True)
    try:
        os.link(draft, path)
    except FileExistsError:
        raise _exists(path) from None


def _exists(path: Path) -> ConfigError:
    return ConfigError(f"{path} is there already", code="import-output-exists", hint="replace it with --force")


def _unwritable(directory: Path, error: OSError) -> ConfigError:
    return ConfigError(f"cannot write into {directory}: {error}", code="import-output-unwritable")
