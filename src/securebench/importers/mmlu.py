"""MMLU and data sets in its format: multiple-choice questions in CSV files without a header.

A line contains a question, its choices, and the letter of the correct one. The authors publish one file per subject
and split, ``<subject>_<split>.csv``, in an archive with one directory per split.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from securebench.errors import ConfigError, SourceLocation
from securebench.families.normalization import choice_labels
from securebench.importers.row import ImportedRow, bad_record, rows_of
from securebench.importers.sources import (
    is_tar,
    is_url,
    opened,
    read_document,
    source_name,
    tar_document,
    tar_documents,
)
from securebench.plurals import counted
from securebench.strict_input.files import decode
from securebench.strict_input.json_text import JsonSource

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from securebench.importers.row import LeftOut

BENCHMARK: Final = "mmlu"
MANIFEST: Final[dict[str, Any]] = {
    "id": BENCHMARK,
    "version": 1,
    "defaults": {"family": "multiple_choice", "environment": {"timeout_seconds": 120}},
}
"""The manifest written if the output directory has none."""

SPLITS: Final = ("test", "val", "dev")
_FEWEST_FIELDS: Final = 4
"""The fields of the shortest record: a question, two choices and an answer."""


def subject_and_split(source: str) -> tuple[str, str]:
    """Return subject and split of a file named ``<subject>_<split>.csv``; two empty strings for any other name."""
    subject, _, split = source_name(source).removesuffix(".csv").rpartition("_")
    return (subject, split) if split in SPLITS and source_name(source).endswith(".csv") else ("", "")


def mmlu_document(source: str, subject: str, split: str) -> tuple[str, bytes]:
    """Return name and content of a subject's CSV file. ``source`` is the file, a directory, or a tar archive.

    Raises :class:`ConfigError`: ``import-file-missing``, ``import-file-ambiguous``, and the errors of :func:`opened`.
    """
    file_name = f"{subject}_{split}.csv"
    if not is_url(source) and Path(source).is_dir():
        source = str(_in_directory(Path(source), file_name, split))
    with opened(source) as (stream, name):
        if is_tar(stream):
            return tar_document(stream, name, file_name)
        return source_name(source) if is_url(source) else source, read_document(stream, name)


def all_documents(source: str, split: str) -> list[tuple[str, str, bytes]]:
    """Return subject, name and content of every subject's CSV file of ``split``, in order of subject.

    ``source`` is a directory or tar archive. Raises :class:`ConfigError` as :func:`mmlu_document` does, and
    ``import-row-invalid`` for a file whose name contains no subject.
    """
    ending, name = f"_{split}.csv", source
    if not is_url(source) and Path(source).is_dir():
        found = [(path.name, str(path), path.read_bytes()) for path in _all_in_directory(Path(source), split)]
    else:
        with opened(source) as (stream, name):
            if not is_tar(stream):
                message = f"{name} is a single file; to import all subjects, pass a directory or a tar archive"
                raise ConfigError(message, code="import-file-missing")
            members = tar_documents(stream, name, lambda file_name: file_name.endswith(ending))
            found = [(PurePosixPath(path).name, f"{name}!{path}", data) for path, data in members]
    subjects = {file_name.removesuffix(ending): (place, data) for file_name, place, data in found}
    if "" in subjects:
        hint = f"rename or remove the file: its name must be <subject>{ending}"
        raise bad_record(SourceLocation(subjects[""][0]), "the name of this file contains no subject", hint)
    if len(subjects) < len(found):
        raise ConfigError(f"{name} contains more than one file for the same subject", code="import-file-ambiguous")
    if not subjects:
        raise ConfigError(f"{name} contains no file named <subject>{ending}", code="import-file-missing")
    return [(subject, *subjects[subject]) for subject in sorted(subjects)]


def mmlu_rows(
    documents: Iterable[tuple[str, str, bytes]], split: str, left_out: LeftOut | None = None
) -> list[ImportedRow]:
    """Return a row for each record of the CSV files ``documents``, each given as subject, name and content.

    Raises :class:`ConfigError` with all problems, or adds them to ``left_out`` if it is given. A file that is not
    valid CSV always raises, because its number of rows is unknown.
    """
    records = (
        (record, f"{BENCHMARK}/{subject}/{split}/{number}")
        for subject, name, data in documents
        for number, record in enumerate(_records(data, name))
    )
    return rows_of(records, lambda named: _row(*named), left_out)


def _all_in_directory(directory: Path, split: str) -> list[Path]:
    """Return the files of all subjects. The authors' directory layouts are tried until one has files.

    The list is empty if there are no files.
    """
    places = (directory, directory / split, directory / "data" / split)
    found = ([path for path in place.glob(f"*_{split}.csv") if path.is_file()] for place in places)
    return next(filter(None, found), [])


def _in_directory(directory: Path, file_name: str, split: str) -> Path:
    """Return the path of the file in ``directory``, ``directory/<split>`` or ``directory/data/<split>``."""
    places = [directory / file_name, directory / split / file_name, directory / "data" / split / file_name]
    found = [place for place in places if place.is_file()]
    if not found:
        hint = f"looked for {', '.join(str(place) for place in places)}"
        raise ConfigError(f"{directory} contains no file {file_name}", code="import-file-missing", hint=hint)
    if len(found) > 1:
        raise ConfigError(f"{directory} contains both {found[0]} and {found[1]}", code="import-file-ambiguous")
    return found[0]


def _records(data: bytes, name: str) -> Iterator[tuple[SourceLocation, list[str]]]:
    """Yield each record that is not blank, and where it starts. Raises :class:`ConfigError` for invalid CSV."""
    text, fault = decode(data)
    if fault is not None:
        raise ConfigError(fault.message, code=fault.code, location=JsonSource(name, "").locate(fault))
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    line = 1
    try:
        for record in reader:
            if record:
                yield SourceLocation(name, line, 1), record
            line = reader.line_num + 1
    except csv.Error as error:
        raise bad_record(SourceLocation(name, line, 1), f"not valid CSV: {error}") from None


def _row(placed: tuple[SourceLocation, list[str]], task_id: str) -> ImportedRow:
    location, record = placed
    if len(record) < _FEWEST_FIELDS:
        hint = "a record contains a question, two or more choices, and the letter of the correct one"
        raise bad_record(location, f"{counted(len(record), 'field')}, expected at least {_FEWEST_FIELDS}", hint)
    question, *choices, answer = record
    labels = choice_labels(len(choices))
    if answer not in labels:
        raise bad_record(location, f"field {len(record)} must be the letter of a choice, {labels[0]} to {labels[-1]}")
    task = {
        "id": task_id,
        "family": "multiple_choice",
        "input": {"question": question, "choices": choices},
        "eval": {"answer": answer},
        "metadata": {"benchmark": BENCHMARK},
    }
    return ImportedRow(task, [*record], location)
