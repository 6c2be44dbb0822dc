"""Writing an imported pack: checked as any pack is, in one piece, and never over something else."""

from __future__ import annotations

import filecmp
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

    Raises :class:`ConfigError`: ``import-output-exists`` for another tasks file that is there, unless ``force``;
    ``import-output-unwritable``; and what is wrong with a row, at its place in the authors' data.
    """
    tasks = directory / TASKS_NAME
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
    """Write ``text`` to a file of its own beside its destination, and remove what is left of that in the end."""
    descriptor, name = tempfile.mkstemp(dir=directory, prefix=".import-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


def _put(draft: Path, path: Path, *, force: bool) -> None:
    """Give ``draft`` the name ``path``, at once. Unless ``force``, another file of that name stays, and is an error."""
    if force:
        draft.replace(path)
        return
    try:
        os.link(draft, path)
    except FileExistsError:
        if not filecmp.cmp(draft, path, shallow=False):
            hint = "replace it with --force"
            raise ConfigError(f"{path} is there, and differs", code="import-output-exists", hint=hint) from None


def _unwritable(directory: Path, error: OSError) -> ConfigError:
    return ConfigError(f"cannot write into {directory}: {error}", code="import-output-unwritable")
