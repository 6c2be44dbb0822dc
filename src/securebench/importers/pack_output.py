"""Write an imported pack.

Before the tasks file is written, its rows are validated like those of any pack. Each file is written atomically. An
existing manifest is kept. Any other existing file with different content is replaced only if ``force`` is set.
"""

from __future__ import annotations

import filecmp
import json
import os
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from securebench.benchmark_compiler import compile_benchmark_pack
from securebench.benchmark_pack import load_benchmark_pack
from securebench.errors import ConfigError, Problem
from securebench.fs.digest import tree_digest
from securebench.fs.safe_open import TreeRefusedError
from securebench.importers.row import skippable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from securebench.importers.row import ImportedRow
    from securebench.importers.terminal.files import TaskFile

MANIFEST_NAME: Final = "manifest.yaml"
TASKS_NAME: Final = "tasks.jsonl"


@dataclass(frozen=True, slots=True)
class WrittenPack:
    """The result of :func:`write_pack`: the tasks file and its rows.

    ``left_out`` maps the id of each row that was left out to the problems of the row.
    """

    tasks: Path
    rows: tuple[ImportedRow, ...]
    left_out: Mapping[str, Sequence[Problem]] = field(default_factory=dict)


def write_pack(
    directory: Path,
    rows: Sequence[ImportedRow],
    manifest: Mapping[str, Any],
    *,
    force: bool,
    skip_unusable: bool = False,
) -> WrittenPack:
    """Write ``tasks.jsonl`` into ``directory``, and ``manifest`` beside it unless a manifest exists.

    An invalid row is reported at its place in the authors' data, or left out if ``skip_unusable`` is set. If no row
    remains, no tasks file is written. Raises :class:`ConfigError` with the problems of the pack,
    ``import-output-exists`` if a different tasks file exists and ``force`` is not set, or ``import-output-unwritable``.
    """
    tasks = directory / TASKS_NAME
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _write_manifest(directory / MANIFEST_NAME, manifest)
        usable, left_out = tuple(rows), dict[str, list[Problem]]()
        while found := _problems(directory, usable) if usable or not skip_unusable else []:
            unusable = [row for row in usable if row.location in {problem.location for problem in found}]
            if not skip_unusable or not unusable:
                raise ConfigError(problems=found)
            # One validation reports a limited number of problems, so the remaining rows are validated again.
            for row in unusable:
                left_out[row.id] = [problem for problem in found if problem.location == row.location]
            usable = tuple(row for row in usable if row.id not in left_out)
        if usable:
            with _draft(directory, _lines(usable)) as draft:
                _put(draft, tasks, force=force)
    except OSError as error:
        raise _unwritable(directory, error) from None
    return WrittenPack(tasks, usable, left_out)


def write_text(path: Path, text: str, *, force: bool) -> None:
    """Write a file atomically. Raises :class:`ConfigError` as :func:`put_tree` does."""
    try:
        with _draft(path.parent, text) as draft:
            _put(draft, path, force=force)
    except OSError as error:
        raise _unwritable(path.parent, error) from None


def put_tree(directory: Path, files: Mapping[str, TaskFile], *, force: bool) -> None:
    """Make ``directory`` contain exactly ``files``, because a row may refer to the whole directory.

    The files are written to a new directory, which is then renamed. Raises :class:`ConfigError`:
    ``import-output-exists`` if ``directory`` has other content and ``force`` is not set, or
    ``import-output-unwritable``.
    """
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory.parent, prefix=".import-") as scratch:
            draft = Path(scratch) / "new"
            _fill(draft, files)
            if directory.is_symlink() or directory.exists():
                if _same_tree(draft, directory):
                    return
                if not force:
                    hint = "pass --force to replace it"
                    raise ConfigError(
                        f"{directory} exists with different content", code="import-output-exists", hint=hint
                    )
                directory.rename(Path(scratch) / "old")
            draft.rename(directory)
    except OSError as error:
        raise _unwritable(directory, error) from None


def _fill(directory: Path, files: Mapping[str, TaskFile]) -> None:
    directory.mkdir(mode=0o755)
    for path, file in files.items():
        place = directory / path
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("xb") as out:
            out.write(file.data)
        place.chmod(0o755 if file.executable else 0o644)


def _same_tree(one: Path, other: Path) -> bool:
    try:
        return tree_digest(one) == tree_digest(other)
    except TreeRefusedError:  # ``other`` is, for example, a link, or contains a FIFO
        return False


def _write_manifest(path: Path, manifest: Mapping[str, Any]) -> None:
    """Write a manifest as JSON, which is also YAML. An existing manifest belongs to the user and is kept."""
    if not path.exists():
        write_text(path, json.dumps(manifest, indent=2) + "\n", force=False)


def _problems(directory: Path, rows: Sequence[ImportedRow]) -> list[Problem]:
    """Validate the pack of ``rows`` and return its problems. The problems of a row point to the authors' record."""
    with _draft(directory, _lines(rows)) as draft:
        try:
            compile_benchmark_pack(load_benchmark_pack(directory / MANIFEST_NAME, draft))
        except ConfigError as error:
            return [_in_source(problem, draft, rows) for problem in error.problems]
    return []


def _lines(rows: Sequence[ImportedRow]) -> str:
    return "".join(f"{row.line}\n" for row in rows)


def _in_source(problem: Problem, draft: Path, rows: Sequence[ImportedRow]) -> Problem:
    place = problem.location
    if place is None or place.line is None or Path(place.file) != draft or place.line > len(rows):
        return problem
    row = rows[place.line - 1]
    where = f" ({place.pointer})" if place.pointer else ""
    return skippable(Problem(problem.code, f"{row.id}: {problem.message}{where}", row.location, problem.hint))


@contextmanager
def _draft(directory: Path, text: str) -> Iterator[Path]:
    """Write ``text`` to a temporary file in ``directory``; remove the file afterwards unless it was renamed."""
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
    """Make ``draft`` the file at ``path``, atomically. Without ``force``, a different file at ``path`` is an error."""
    if force:
        draft.replace(path)
        return
    try:
        os.link(draft, path)
    except FileExistsError:
        if not filecmp.cmp(draft, path, shallow=False):
            hint = "pass --force to replace it"
            raise ConfigError(f"{path} exists with different content", code="import-output-exists", hint=hint) from None


def _unwritable(directory: Path, error: OSError) -> ConfigError:
    return ConfigError(f"cannot write into {directory}: {error}", code="import-output-unwritable")
